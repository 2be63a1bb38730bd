import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartitionReplica;

/** alterReplicaLogDirs of Kafka's own AdminClient: BOOTSTRAP, then TOPIC PARTITION DIRECTORY each. */
public class MoveReplicas {
    public static void main(String[] args) throws Exception {
        Map<TopicPartitionReplica, String> wanted = new LinkedHashMap<>();
        for (int at = 1; at < args.length; at += 3)
            wanted.put(new TopicPartitionReplica(args[at], Integer.parseInt(args[at + 1]), 0), args[at + 2]);
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            Map<TopicPartitionReplica, ?> results = admin.alterReplicaLogDirs(wanted).values();
            for (TopicPartitionReplica replica : wanted.keySet()) {
                String said = "ok";
                try {
                    ((org.apache.kafka.common.KafkaFuture<?>) results.get(replica)).get();
                } catch (ExecutionException e) {
                    said = e.getCause().getClass().getSimpleName();
                }
                System.out.println(replica.topic() + "-" + replica.partition() + " " + said);
            }
            for (Map.Entry<TopicPartitionReplica, DescribeReplicaLogDirsResult.ReplicaLogDirInfo> each
                    : admin.describeReplicaLogDirs(wanted.keySet()).all().get().entrySet())
                System.out.println(each.getKey().topic() + "-" + each.getKey().partition() + " in "
                    + each.getValue().getCurrentReplicaLogDir() + " to "
                    + each.getValue().getFutureReplicaLogDir());
        }
    }
}
