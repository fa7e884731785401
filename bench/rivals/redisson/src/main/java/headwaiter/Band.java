package headwaiter;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Band is the clients and workers of one work. */
final class Band {
    private static final int WARMING = 0;
    private static final int MEASURING = 1;
    private static final int DRAINING = 2;

    private final Agent agent;
    private final long hold;
    private final List<Worker> workers = new ArrayList<>();
    private volatile int phase;

    /** Makes the clients, and takes and releases each lock once. */
    Band(Agent agent, Clients clients, String[] words) throws Exception {
        this.agent = agent;
        int count = Integer.parseInt(words[2]);
        int each = Integer.parseInt(words[3]);
        boolean own = words[4].equals("1");
        hold = Long.parseLong(words[5]);
        for (int i = 0; i < count; i++) {
            RedissonClient client = clients.get(i, each);
            for (int j = 0; j < each; j++) {
                int lock = own ? workers.size() : 0;
                workers.add(new Worker(workers.size(), lock, clients.lock(client, words[6] + ":" + lock)));
            }
        }
        for (Worker worker : workers) {
            worker.cycle(0);
        }
    }

    List<Worker> workers() {
        return workers;
    }

    void begin(long id) {
        phase = WARMING;
        AtomicInteger cold = new AtomicInteger(workers.size());
        AtomicInteger working = new AtomicInteger(workers.size());
        for (Worker worker : workers) {
            worker.events.clear();
            Thread thread = new Thread(() -> {
                Exception failed = null;
                try {
                    while (phase != DRAINING) {
                        worker.events.add(worker.cycle(phase == MEASURING ? hold : 0));
                        if (worker.events.size() == 1 && cold.decrementAndGet() == 0) {
                            agent.say(id, "warm");
                        }
                    }
                } catch (Exception e) {
                    failed = e;
                    agent.fail(id, e);
                }
                if (working.decrementAndGet() == 0 && failed == null) {
                    agent.say(id, "ok");
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    void measure() {
        phase = MEASURING;
    }

    void drain() {
        phase = DRAINING;
    }

    /** Worker is a thread that loops. */
    static final class Worker {
        final int id;
        final int lock;
        final List<long[]> events = new ArrayList<>();
        private final RLock mutex;

        Worker(int id, int lock, RLock mutex) {
            this.id = id;
            this.lock = lock;
            this.mutex = mutex;
        }

        /** cycle acquires, holds and releases: start, acquired, releasing, released. */
        long[] cycle(long hold) throws InterruptedException {
            long start = Agent.now();
            mutex.lock();
            long acquired = Agent.now();
            if (hold > 0) {
                Thread.sleep(hold / 1_000_000, (int) (hold % 1_000_000));
            }
            long releasing = Agent.now();
            mutex.unlock();
            return new long[] {start, acquired, releasing, Agent.now()};
        }
    }
}
