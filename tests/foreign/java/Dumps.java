import java.io.*;

/** DumpLogSegments again and again in one JVM: asked by a line of files; ends with a full stop. */
public class Dumps {
    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String files = asked.readLine(); files != null; files = asked.readLine()) {
            kafka.tools.DumpLogSegments.main(new String[] {"--deep-iteration", "--files", files});
            System.out.println(".");
            System.out.flush();
        }
    }
}
