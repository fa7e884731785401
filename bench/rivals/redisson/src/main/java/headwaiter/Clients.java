package headwaiter;

import java.util.ArrayList;
import java.util.List;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;

/**
 * Clients makes instances of Redisson, each with connections and an identity of its own. They share four netty threads:
 * on two cores that is faster than the 32 of the default. All else is as delivered, but that a client has no more idle
 * connections than its workers use.
 */
final class Clients {
    private static final int NETTY_THREADS = 4;

    private final String address;
    private final boolean fair;
    private final EventLoopGroup loops = new MultiThreadIoEventLoopGroup(NETTY_THREADS, NioIoHandler.newFactory());
    private final List<RedissonClient> all = new ArrayList<>();

    Clients(String address, boolean fair) {
        this.address = address;
        this.fair = fair;
    }

    /** get returns the client of that number, for so many workers. */
    RedissonClient get(int i, int workers) {
        while (all.size() <= i) {
            Config config = new Config();
            config.setEventLoopGroup(loops);
            config.useSingleServer().setAddress("redis://" + address)
                .setConnectionMinimumIdleSize(Math.min(24, 2 * workers));
            all.add(Redisson.create(config));
        }
        return all.get(i);
    }

    /** close ends all clients. */
    void close() {
        all.parallelStream().forEach(RedissonClient::shutdown); // Each waits for its connections.
        all.clear();
    }

    RLock lock(RedissonClient client, String name) {
        return fair ? client.getFairLock(name) : client.getLock(name);
    }
}
