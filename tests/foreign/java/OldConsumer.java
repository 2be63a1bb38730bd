// Apache's consumer of Kafka 0.8, whose group lives in ZooKeeper, as a process that a test talks to.
//   java -cp "JARS/*" OldConsumer.java topic|white|black NAME THREADS key=value...
// Prints `ready` when its streams are there, then `topic partition offset value` a record. A line
// `commit` on standard input commits (and prints `committed`); its end shuts the consumer down.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

class OldConsumer {
    public static void main(String[] given) throws Exception {
        String name = given[1];
        int threads = Integer.parseInt(given[2]);
        Properties settings = new Properties();
        for (int n = 3; n < given.length; n++) {
            String[] parts = given[n].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        ConsumerConnector connector =
            Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        List<KafkaStream<byte[], byte[]>> streams =
            given[0].equals("white")
                ? connector.createMessageStreamsByFilter(new Whitelist(name), threads)
                : given[0].equals("black")
                    ? connector.createMessageStreamsByFilter(new Blacklist(name), threads)
                    : connector.createMessageStreams(Map.of(name, threads)).get(name);
        for (KafkaStream<byte[], byte[]> stream : streams) {
            Thread thread = new Thread(() -> read(stream));
            thread.setDaemon(true);
            thread.start();
        }
        say("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order; (order = orders.readLine()) != null; ) {
            if (order.equals("commit")) {
                connector.commitOffsets();
                say("committed");
            }
        }
        connector.shutdown();
        say("ended");
    }

    static void read(KafkaStream<byte[], byte[]> stream) {
        for (MessageAndMetadata<byte[], byte[]> record : stream) {
            String value = new String(record.message());
            say(record.topic() + " " + record.partition() + " " + record.offset() + " " + value);
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
