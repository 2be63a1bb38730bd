import java.io.*;
import java.util.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer of any Kafka since 0.11 that does what standard input says, a line each:
 *   begin | send TOPIC PARTITION VALUE | offsets GROUP TOPIC PARTITION OFFSET | commit | abort
 * Each line is answered by "done" or by the name of the exception. `send` waits for the broker.
 * Arguments: the bootstrap servers, the transactional id, then settings as key=value.
 */
public class Transactions {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("transactional.id", args[1]);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        for (String setting : Arrays.copyOfRange(args, 2, args.length))
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            say(producer, "init");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) say(producer, line);
        }
    }

    private static void say(KafkaProducer<String, String> producer, String line) {
        try {
            act(producer, line.split(" "));
            System.out.println("done");
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            System.err.println(line + ": " + cause);
            System.out.println(cause.getClass().getSimpleName());
        }
        System.out.flush();
    }

    private static void act(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init": producer.initTransactions(); break;
            case "begin": producer.beginTransaction(); break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            case "send":
                producer.send(new ProducerRecord<>(words[1], Integer.valueOf(words[2]), null, words[3])).get();
                break;
            case "offsets":
                TopicPartition partition = new TopicPartition(words[2], Integer.parseInt(words[3]));
                offsets(producer, words[1], Map.of(partition, new OffsetAndMetadata(Long.parseLong(words[4]))));
                break;
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    /** Since 2.5 a group has metadata; before, and only until 3, it was a name. */
    private static void offsets(KafkaProducer<String, String> producer, String group, Map<?, ?> offsets)
            throws Exception {
        Class<?> kind = String.class;
        Object named = group;
        try {
            kind = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            named = kind.getConstructor(String.class).newInstance(group);
        } catch (ClassNotFoundException e) {
            // before 2.5
        }
        KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, kind).invoke(producer, offsets, named);
    }
}
