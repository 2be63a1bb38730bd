import java.io.*;
import org.apache.kafka.common.utils.Exit;

/** kafka-configs, many times in one process: its class; each line of standard input is its words. */
public class Configs {
    public static void main(String[] args) throws Exception {
        var tool = Class.forName(args[0]).getMethod("main", String[].class);
        Exit.setExitProcedure((status, message) -> { throw new Stopped(status); });
        PrintStream out = System.out;
        System.setErr(out);
        for (String line : new BufferedReader(new InputStreamReader(System.in)).lines().toList()) {
            out.println("> " + line);
            try {
                tool.invoke(null, (Object) line.split(" "));
            } catch (java.lang.reflect.InvocationTargetException e) {
                if (!(e.getCause() instanceof Stopped)) out.println(e.getCause());
            }
        }
    }

    private static class Stopped extends RuntimeException {
        Stopped(int status) { super("exit " + status); }
    }
}
