package recording;

import java.nio.file.Path;

/** Writes all recorded files into the folder given as the only argument. */
public final class Main {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        SessionWindows.record(folder.resolve("session_windows.jsonl"));
    }

    private Main() {}
}
