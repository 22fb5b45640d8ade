import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

/**
 * Java's assignors, asked. Standard input is a JSON array of cases {strategy, topics: {name: count}, members: {id:
 * {instance, subscription: hex}}}; each one's answer on standard output is a line {assignment: {id: [[topic,
 * partition]]}, user_data: {id: hex or null}}, where the user data is what each member would send at its next join, having
 * been given its assignment in generation 7.
 */
public class Assignments {
    static ConsumerPartitionAssignor assignor(String name) {
        for (ConsumerPartitionAssignor one : List.of(new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(),
            new CooperativeStickyAssignor()))
            if (one.name().equals(name)) return one;
        throw new IllegalArgumentException(name);
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        HexFormat hex = HexFormat.of();
        for (JsonNode one : json.readTree(System.in)) {
            Node node = new Node(0, "here", 9092);
            List<PartitionInfo> partitions = new ArrayList<>();
            one.get("topics").fields().forEachRemaining(topic -> {
                for (int number = 0; number < topic.getValue().asInt(); number++)
                    partitions.add(new PartitionInfo(topic.getKey(), number, node, new Node[] {node}, new Node[] {node}));
            });
            Cluster cluster = new Cluster("id", List.of(node), partitions, Set.of(), Set.of());
            Map<String, Subscription> members = new HashMap<>();
            one.get("members").fields().forEachRemaining(member -> {
                Subscription subscription = ConsumerProtocol.deserializeSubscription(
                    ByteBuffer.wrap(hex.parseHex(member.getValue().get("subscription").asText())));
                JsonNode instance = member.getValue().get("instance");
                subscription.setGroupInstanceId(instance.isNull() ? Optional.empty() : Optional.of(instance.asText()));
                members.put(member.getKey(), subscription);
            });
            String strategy = one.get("strategy").asText();
            Map<String, Assignment> result =
                assignor(strategy).assign(cluster, new GroupSubscription(members)).groupAssignment();
            ObjectNode line = json.createObjectNode();
            ObjectNode assignment = line.putObject("assignment");
            ObjectNode userData = line.putObject("user_data");
            for (Map.Entry<String, Assignment> each : result.entrySet()) {
                ArrayNode mine = assignment.putArray(each.getKey());
                for (TopicPartition partition : each.getValue().partitions())
                    mine.addArray().add(partition.topic()).add(partition.partition());
                ConsumerPartitionAssignor member = assignor(strategy);
                member.onAssignment(each.getValue(), new ConsumerGroupMetadata("g", 7, each.getKey(), Optional.empty()));
                ByteBuffer data = member.subscriptionUserData(Set.copyOf(members.get(each.getKey()).topics()));
                if (data == null) userData.putNull(each.getKey());
                else {
                    byte[] bytes = new byte[data.remaining()];
                    data.get(bytes);
                    userData.put(each.getKey(), hex.formatHex(bytes));
                }
            }
            System.out.println(json.writeValueAsString(line));
        }
    }
}
