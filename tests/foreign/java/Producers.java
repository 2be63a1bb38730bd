import java.io.File;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.*;

/**
 * The producers of a partition as Kafka knows them when it opens the log: its folder, its end offset.
 * A line each: id, epoch, last sequence, last offset.
 */
public class Producers {
    public static void main(String[] args) throws Exception {
        var settings = new ProducerStateManagerConfig(86400000, false);
        var manager = new ProducerStateManager(
                new TopicPartition("any", 0), new File(args[0]), 900000, settings, Time.SYSTEM);
        manager.truncateAndReload(0, Long.parseLong(args[1]), System.currentTimeMillis());
        manager.activeProducers().forEach((id, entry) -> System.out.println(
                id + " " + entry.producerEpoch() + " " + entry.lastSeq() + " " + entry.lastDataOffset()));
    }
}
