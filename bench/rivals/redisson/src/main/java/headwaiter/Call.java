package headwaiter;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Call is one call of a lock, on a thread of its own, because a hold belongs to its thread. */
final class Call extends Thread {
    private final Agent agent;
    private final long id;
    private final RLock lock;
    private final long limit;
    private final LinkedBlockingQueue<long[]> releases = new LinkedBlockingQueue<>();

    Call(Agent agent, long id, RedissonClient client, long limit, String name) {
        this.agent = agent;
        this.id = id;
        this.limit = limit;
        this.lock = agent.lock(client, name);
        setDaemon(true);
    }

    /** release ends the hold at the given time. */
    void release(long command, long at) {
        releases.add(new long[] {command, at});
    }

    @Override
    public void run() {
        agent.say(id, "asked " + Agent.now());
        try {
            if (limit == 0) {
                lock.lock();
            } else if (!lock.tryLock(limit, TimeUnit.NANOSECONDS)) {
                agent.say(id, "gave-up " + Agent.now());
                agent.say(id, "ok");
                return;
            }
            agent.say(id, "held " + Agent.now() + " 0");
        } catch (Exception e) {
            agent.fail(id, e);
            return;
        }
        long command = 0;
        try {
            long[] release = releases.take();
            command = release[0];
            TimeUnit.NANOSECONDS.sleep(release[1] - Agent.now());
            long from = Agent.now();
            lock.unlock();
            agent.say(command, "ok " + from + " " + Agent.now());
        } catch (Exception e) {
            agent.fail(command, e);
        }
    }
}
