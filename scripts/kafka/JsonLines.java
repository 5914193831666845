import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.header.Header;

/** Lets Kafka's console consumer print a record as one line of JSON: with its topic, and with null told from "null". */
public final class JsonLines implements MessageFormatter {
    private final ObjectMapper json = new ObjectMapper();

    @Override
    public void writeTo(ConsumerRecord<byte[], byte[]> record, PrintStream output) {
        ObjectNode line = json.createObjectNode();
        line.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
        line.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        output.println(line);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
