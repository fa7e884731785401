package headwaiter;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.management.ManagementFactory;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.redisson.api.RFuture;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Agent obeys the commands that bench/agent.go lists, with clients of Redisson: java headwaiter.Agent HOST:PORT
 * fair|plain. Times are ns of the wall clock, read once; what passes since then is the monotonic clock's.
 */
public final class Agent {
    private static final long BASE = wall() - System.nanoTime();

    private final Clients clients;
    private final BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out));
    private final Map<Long, Call> calls = new HashMap<>();
    private final List<RFuture<Void>> crowd = new ArrayList<>();
    private final AtomicLong threads = new AtomicLong(1_000_000);
    private Band band;

    private Agent(Clients clients) {
        this.clients = clients;
    }

    private static long wall() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    /** now is the time as bench's agents tell it. */
    static long now() {
        return BASE + System.nanoTime();
    }

    public static void main(String[] args) throws Exception {
        Agent agent = new Agent(new Clients(args[0], args[1].equals("fair")));
        agent.say(0, "ok redisson " + RLock.class.getPackage().getImplementationVersion());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            long id = Long.parseLong(words[0]);
            try {
                agent.obey(id, words);
            } catch (Exception e) {
                agent.fail(id, e);
            }
        }
        // What still waits would hold up an orderly end.
        Runtime.getRuntime().halt(0);
    }

    private void obey(long id, String[] words) throws Exception {
        switch (words[1]) {
            case "open" -> {
                band = new Band(this, clients, words);
                say(id, "ok");
            }
            case "begin" -> band.begin(id);
            case "measure" -> {
                band.measure();
                say(id, "ok " + cpu());
            }
            case "drain" -> {
                say(id, "ok " + cpu());
                band.drain();
            }
            case "close" -> {
                clients.close();
                say(id, "ok");
            }
            case "events" -> events(id);
            case "lock" -> {
                Call call = new Call(this, id, clients.get(Integer.parseInt(words[2]), 1), Long.parseLong(words[3]), words[4]);
                calls.put(id, call);
                call.start();
            }
            case "release" -> calls.get(Long.parseLong(words[2])).release(id, Long.parseLong(words[3]));
            case "crowd" -> {
                gather(Integer.parseInt(words[2]), words[3]);
                say(id, "ok");
            }
            case "leave" -> say(id, "ok"); // Nothing ends a call of lockAsync in front of its time.
            case "memory" -> {
                System.gc();
                say(id, "ok " + (Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory()));
            }
            default -> throw new IllegalArgumentException(words[1] + " is no command");
        }
    }

    /** gather makes calls of one client that release at once when they hold. */
    private void gather(int n, String name) {
        RedissonClient client = clients.get(0, 1);
        RLock lock = clients.lock(client, name);
        for (int i = 0; i < n; i++) {
            long thread = threads.incrementAndGet();
            RFuture<Void> waiting = lock.lockAsync(thread);
            waiting.thenRun(() -> lock.unlockAsync(thread));
            crowd.add(waiting);
        }
    }

    private void events(long id) throws IOException {
        synchronized (out) {
            for (Band.Worker worker : band.workers()) {
                for (long[] e : worker.events) {
                    out.write(id + " e " + worker.id + " " + worker.lock + " " + e[0] + " " + e[1] + " " + e[2] + " " + e[3] + " 0\n");
                }
            }
        }
        say(id, "ok");
    }

    RLock lock(RedissonClient client, String name) {
        return clients.lock(client, name);
    }

    /** cpu is what this process has used, in µs. */
    private static long cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return TimeUnit.NANOSECONDS.toMicros(system.getProcessCpuTime());
    }

    void say(long id, String text) {
        synchronized (out) {
            try {
                out.write(id + " " + text + "\n");
                out.flush();
            } catch (IOException e) {
                Runtime.getRuntime().halt(1); // Nobody listens any more.
            }
        }
    }

    void fail(long id, Throwable why) {
        say(id, "failed " + why.toString().replace('\n', ' '));
    }
}
