import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeMap;

/**
 * What java.util.Properties reads in texts: one line each, keys and values in hexadecimal UTF-8, or "refused".
 * Standard input: size (int32) and the text in ISO-8859-1 of each; size -1 ends it.
 */
public class PropertiesFiles {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false);
        for (int size = in.readInt(); size >= 0; size = in.readInt()) {
            byte[] text = new byte[size];
            in.readFully(text);
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(text));
            } catch (IllegalArgumentException e) {
                out.println("refused");
                continue;
            }
            StringBuilder line = new StringBuilder();
            new TreeMap<Object, Object>(properties).forEach((key, value) ->
                line.append(hex((String) key)).append('=').append(hex((String) value)).append(' '));
            out.println(line);
        }
        out.flush();
    }

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
