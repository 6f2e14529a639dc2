import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.Date;
import java.util.TimeZone;
import org.quartz.CronExpression;

/**
 * Prints the fires of cron expressions, as Quartz computes them. Each line of the input has an expression, a time zone,
 * an instant in seconds since the Unix epoch and a number, separated by tabs. The line of the output has that number of
 * fires after the instant, fewer if there are no more, or "error". After each fire come a slash and the zone's offset then.
 */
public class QuartzFires {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t");
            try {
                CronExpression expression = new CronExpression(fields[0]);
                expression.setTimeZone(TimeZone.getTimeZone(fields[1]));
                Date fire = Date.from(Instant.ofEpochSecond(Long.parseLong(fields[2])));
                for (int n = Integer.parseInt(fields[3]); n > 0; n--) {
                    fire = expression.getNextValidTimeAfter(fire);
                    if (fire == null) {
                        break;
                    }
                    out.append(fire.getTime() / 1000).append('/');
                    out.append(expression.getTimeZone().getOffset(fire.getTime()) / 1000).append(' ');
                }
            } catch (java.text.ParseException e) {
                out.append("error");
            }
            out.append('\n');
        }
        System.out.print(out);
    }
}
