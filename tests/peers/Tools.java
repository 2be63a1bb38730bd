import java.io.*;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, many times in one process. Each line of standard input is a class and
 * its words, apart by tabs; the answer is what the tool prints, then a line with U+0004 and its exit
 * code. The code is the first one: a tool may catch what stands for the end of its process.
 */
public class Tools {
    private static Integer code;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setErr(out);
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        for (String line : (Iterable<String>) new BufferedReader(new InputStreamReader(System.in)).lines()::iterator) {
            String[] words = line.split("\t");
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            code = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            } catch (java.lang.reflect.InvocationTargetException e) {
                if (code == null) {
                    code = 1;
                    out.println(e.getCause());
                }
            }
            out.println("\n\u0004" + (code == null ? 0 : code));
            out.flush();
        }
    }

    private static void exit(int status) {
        if (code == null) code = status;
        throw new RuntimeException("exit " + status);
    }
}
