package recording;

import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.windowing.assigners.DynamicEventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.triggers.EventTimeTrigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Random;

/** Session windows with a fixed gap, or with the gap that an element names (gap 0 here). */
final class SessionWindows {
    private final Cases cases = new Cases("session");

    static void record(Path file) throws Exception {
        SessionWindows recorder = new SessionWindows();
        recorder.chosen();
        for (int seed = 1; seed <= 220; seed++) {
            recorder.random(seed);
        }
        for (int seed = 1; seed <= 30; seed++) {
            recorder.bridges(seed);
        }
        recorder.cases.write(file);
    }

    static WindowAssigner<Object, TimeWindow> assigner(long gap) {
        return gap > 0
                ? EventTimeSessionWindows.withGap(Duration.ofMillis(gap))
                : DynamicEventTimeSessionWindows.withDynamicGap(element -> gapOf(element));
    }

    @SuppressWarnings("unchecked")
    private static long gapOf(Object element) {
        return ((Tuple3<String, Long, Long>) element).f2;
    }

    private interface Script {
        void run(WindowScript script) throws Exception;
    }

    private void add(String tag, long gap, long lateness, String contents, Script script) throws Exception {
        var settings =
                new WindowScript.Settings(assigner(gap), EventTimeTrigger.create(), lateness, contents, 0);
        try (WindowScript run = new WindowScript(settings)) {
            script.run(run);
            cases.add(
                    tag,
                    Cases.map(
                            "gap_ms", gap > 0 ? gap : null, "allowed_lateness_ms", lateness, "contents", contents),
                    run.steps());
        }
    }

    private void add(String tag, long gap, long lateness, Script script) throws Exception {
        add(tag, gap, lateness, "sum", script);
        add(tag, gap, lateness, "list", script);
    }

    private void chosen() throws Exception {
        add("touching_windows_merge", 10, 0, run -> {
            run.element("a", 0, null);
            run.element("a", 10, null);
            run.watermark(18);
            run.watermark(19);
        });
        add("one_more_than_the_gap", 10, 0, run -> {
            run.element("a", 0, null);
            run.element("a", 11, null);
            run.watermark(9);
            run.watermark(20);
        });
        add("bridge_two", 10, 0, run -> {
            run.element("a", 0, null);
            run.element("a", 20, null);
            run.element("a", 10, null);
            run.watermark(28);
            run.watermark(29);
        });
        add("bridge_three", 0, 0, run -> {
            run.element("a", 0, 5L);
            run.element("a", 10, 5L);
            run.element("a", 20, 5L);
            run.element("b", 3, 5L);
            run.element("a", 4, 30L);
            run.watermark(33);
            run.watermark(100);
        });
        add("same_timestamps", 5, 0, run -> {
            run.element("a", 7, null);
            run.element("a", 7, null);
            run.element("b", 7, null);
            run.element("a", 7, null);
            run.watermark(11);
        });
        add("late_alone", 5, 0, run -> {
            run.watermark(10);
            run.element("a", 5, null);
            run.element("a", 6, null);
            run.element("a", 7, null);
            run.watermark(50);
        });
        add("late_alone_but_merging", 5, 0, run -> {
            run.element("a", 9, null);
            run.watermark(10);
            run.element("a", 5, null);
            run.element("a", 3, null);
            run.element("a", -10, null);
            run.watermark(50);
        });
        add("after_firing_without_lateness", 5, 0, run -> {
            run.element("a", 0, null);
            run.watermark(4);
            run.element("a", 1, null);
            run.element("a", 0, null);
            run.watermark(50);
        });
        add("late_within_lateness", 5, 10, run -> {
            run.element("a", 0, null);
            run.watermark(4);
            run.element("a", 0, null);
            run.element("a", -1, null);
            run.watermark(13);
            run.element("a", -2, null);
            run.watermark(14);
            run.element("a", -2, null);
            run.element("a", 3, null);
            run.watermark(50);
        });
        add("fired_window_grows_again", 5, 10, run -> {
            run.element("a", 0, null);
            run.watermark(6);
            run.element("a", 4, null);
            run.watermark(7);
            run.watermark(8);
            run.watermark(17);
            run.watermark(18);
        });
        add("bridge_fired_and_open", 5, 20, run -> {
            run.element("a", 0, null);
            run.watermark(6);
            run.element("a", 10, null);
            run.element("a", 5, null);
            run.watermark(14);
            run.watermark(40);
        });
        add("bridge_two_fired", 5, 20, run -> {
            run.element("a", 0, null);
            run.element("a", 10, null);
            run.watermark(16);
            run.element("a", 5, null);
            run.watermark(33);
            run.watermark(34);
        });
        add("merging_prolongs_the_cleanup", 5, 10, run -> {
            run.element("a", 0, null);
            run.watermark(13);
            run.element("a", 5, null);
            run.watermark(14);
            run.element("a", 0, null);
            run.watermark(19);
            run.element("a", 0, null);
            run.watermark(20);
        });
        add("contained", 0, 0, run -> {
            run.element("a", 0, 100L);
            run.element("a", 10, 5L);
            run.element("a", 10, 5L);
            run.watermark(50);
            run.element("a", 20, 5L);
            run.watermark(99);
        });
        add("gap_per_element_short_before_long", 0, 0, run -> {
            run.element("a", 0, 3L);
            run.element("a", 2, 20L);
            run.element("a", 21, 1L);
            run.element("a", 23, 1L);
            run.watermark(21);
            run.watermark(30);
        });
        add("negative_timestamps", 5, 0, run -> {
            run.element("a", -7, null);
            run.element("a", -3, null);
            run.element("a", 2, null);
            run.watermark(-4);
            run.watermark(6);
        });
        add("restored_between", 5, 10, run -> {
            run.element("a", 0, null);
            run.element("a", 7, null);
            run.restore();
            run.element("a", 4, null);
            run.watermark(11);
            run.restore();
            run.element("a", 2, null);
            run.watermark(21);
            run.restore();
            run.element("a", 2, null);
        });
        add("end_of_input", 5, 10, run -> {
            run.element("a", 0, null);
            run.watermark(6);
            run.element("b", 3, null);
            run.watermark(Long.MAX_VALUE);
        });
        add("largest_gap", 0, 10, run -> {
            run.element("a", 0, Long.MAX_VALUE - 5);
            run.element("b", 5, 5L);
            run.watermark(1_000);
            run.element("a", 900, 1L);
            run.watermark(Long.MAX_VALUE);
        });
        add("keys_do_not_merge", 10, 0, run -> {
            run.element("a", 0, null);
            run.element("b", 5, null);
            run.element("c", 12, null);
            run.watermark(14);
            run.watermark(30);
        });
    }

    private void random(int seed) throws Exception {
        Random random = new Random(seed);
        boolean dynamic = random.nextInt(3) == 0;
        long gap = dynamic ? 0 : 2 + random.nextInt(7);
        long lateness = new long[] {0, 0, 3, 8, 20}[random.nextInt(5)];
        String contents = random.nextBoolean() ? "sum" : "list";
        String[] keys = random.nextInt(4) == 0 ? new String[] {"a", "b", "c"} : new String[] {"a"};
        add("random", gap, lateness, contents, run -> {
            long now = random.nextInt(5);
            int length = 8 + random.nextInt(16);
            int stride = 4 + random.nextInt(14);
            for (int i = 0; i < length; i++) {
                int kind = random.nextInt(20);
                if (kind == 0) {
                    run.restore();
                } else if (kind < 6) {
                    run.watermark(Math.max(run.watermark(), now - 2 * stride + random.nextInt(3 * stride)));
                } else {
                    now += random.nextInt(stride);
                    long timestamp = random.nextInt(3) > 0 ? now : now - random.nextInt(3 * stride);
                    long longest = random.nextInt(5) == 0 ? 50 : 9;
                    Long own = dynamic ? Long.valueOf(1 + random.nextLong(longest)) : null;
                    run.element(keys[random.nextInt(keys.length)], timestamp, own);
                }
            }
            run.watermark(now + 100);
        });
    }

    /** Many small sessions first, then elements that join several of them. */
    private void bridges(int seed) throws Exception {
        Random random = new Random(seed);
        long lateness = random.nextInt(3) * 20L;
        String contents = random.nextBoolean() ? "sum" : "list";
        add("random_bridges", 0, lateness, contents, run -> {
            for (int i = 0; i < 8; i++) {
                run.element("a", random.nextInt(100), 1L + random.nextInt(8));
            }
            for (int i = 0; i < 6; i++) {
                if (random.nextBoolean()) {
                    run.watermark(Math.max(run.watermark(), 10L * i + random.nextInt(20)));
                }
                if (random.nextInt(6) == 0) {
                    run.restore();
                }
                run.element("a", random.nextInt(90), 10L + random.nextInt(30));
            }
            run.watermark(300);
        });
    }
}
