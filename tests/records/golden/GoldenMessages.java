// Writes messages.json: message sets of formats 0 and 1 as Apache Kafka's own classes write them, convert them from and to
// format 2, and as its cleaner rewrites them. With the jars of a Kafka 3.9.1 broker in LIBS:
//
//   java -cp 'LIBS/*' GoldenMessages.java > messages.json

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class GoldenMessages {
    static final long T = 1_700_000_000_000L;
    static final List<String> cases = new ArrayList<>();
    static final CompressionType[] CODECS = {
        CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4};

    // The time of every append.
    static final Time TIME = (Time) java.lang.reflect.Proxy.newProxyInstance(
        GoldenMessages.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, args) ->
            method.getName().equals("milliseconds") ? T + 5 : 0L);

    static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String quoted(byte[] bytes) {
        return bytes == null ? "null" : '"' + HexFormat.of().formatHex(bytes) + '"';
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    static String recordsOf(MemoryRecords records) {
        List<String> out = new ArrayList<>();
        for (Record r : records.records()) {
            List<String> headers = new ArrayList<>();
            for (Header h : r.headers())
                headers.add("[" + quoted(utf8(h.key())) + ", " + quoted(h.value()) + "]");
            out.add("[" + r.offset() + ", " + r.timestamp() + ", " + quoted(bytes(r.key())) + ", "
                + quoted(bytes(r.value())) + ", [" + String.join(", ", headers) + "]]");
        }
        return "[" + String.join(",\n    ", out) + "]";
    }

    static MemoryRecords add(String kind, String name, int magic, String extra, MemoryRecords records) {
        cases.add(" {\"kind\": \"" + kind + "\", \"name\": \"" + name + "\", \"magic\": " + magic + "," + extra
            + "\n  \"bytes\": " + quoted(bytes(records.buffer())) + ",\n  \"records\": " + recordsOf(records) + "}");
        return records;
    }

    static SimpleRecord[] mixed(boolean headers) {
        String text = "The quick brown fox jumps over the lazy dog. ".repeat(3);
        return new SimpleRecord[] {
            new SimpleRecord(T, utf8("key"), utf8("value")),
            new SimpleRecord(T + 1, null, utf8(text)),
            new SimpleRecord(T - 70, utf8("gone"), null),
            new SimpleRecord(T + 100_000, new byte[0], new byte[0]),
            headers ? new SimpleRecord(T + 3, utf8("h"), utf8(text), new Header[] {
                new RecordHeader("trace", utf8("abc")), new RecordHeader("null", (byte[]) null)})
                : new SimpleRecord(T + 3, utf8("h"), utf8(text)),
        };
    }

    static MemoryRecords build(byte magic, CompressionType codec, TimestampType type, long baseOffset,
                               SimpleRecord... records) {
        return build(magic, codec, type, baseOffset, -1, false, records);
    }

    static MemoryRecords build(byte magic, CompressionType codec, TimestampType type, long baseOffset, long producerId,
                               boolean transactional, SimpleRecord... records) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), magic,
            Compression.of(codec).build(), type, baseOffset, T + 5, producerId, (short) (producerId < 0 ? -1 : 3),
            producerId < 0 ? -1 : 17, transactional, magic < 2 ? -1 : 9);
        for (SimpleRecord record : records)
            builder.append(record);
        return builder.build();
    }

    static MemoryRecords join(MemoryRecords... sets) {
        ByteBuffer out = ByteBuffer.allocate(65536);
        for (MemoryRecords set : sets)
            out.put(set.buffer());
        out.flip();
        return MemoryRecords.readableRecords(out);
    }

    static void down(String name, int magic, long firstOffset, MemoryRecords original) {
        add("down", name + "-to-" + magic, magic, "\n  \"from\": " + quoted(bytes(original.buffer()))
            + ", \"first_offset\": " + firstOffset + ",",
            (MemoryRecords) original.downConvert((byte) magic, firstOffset, TIME).records());
    }

    static void up(String name, CompressionType source, Compression target, TimestampType type, MemoryRecords original) {
        byte[] from = bytes(original.buffer());
        LogValidator validator = new LogValidator(original, new TopicPartition("t", 0), TIME, source, target, false,
            RecordBatch.MAGIC_VALUE_V2, type, Long.MAX_VALUE, Long.MAX_VALUE, 9, AppendOrigin.CLIENT,
            MetadataVersion.latestProduction());
        LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(1000), null, BufferSupplier.NO_CACHING);
        add("up", name, 2, "\n  \"from\": " + quoted(from) + ", \"codec\": " + target.type().id
            + ", \"append_time\": " + (type == TimestampType.LOG_APPEND_TIME) + ",", result.validatedRecords);
    }

    static void cleaned(String name, int magic, MemoryRecords original, Set<Long> keep) {
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(T, 1000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.DELETE_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keep.contains(record.offset());
            }
        };
        ByteBuffer out = ByteBuffer.allocate(65536);
        original.filterTo(new TopicPartition("t", 0), filter, out, Integer.MAX_VALUE, BufferSupplier.NO_CACHING);
        out.flip();
        add("cleaned", name, magic, "\n  \"from\": " + quoted(bytes(original.buffer())) + ",",
            MemoryRecords.readableRecords(out));
    }

    public static void main(String[] args) {
        for (byte magic = 0; magic < 2; magic++) {
            TimestampType created = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
            for (CompressionType codec : CODECS) {
                MemoryRecords set = add("built", codec.name + "-" + magic, magic, "",
                    build(magic, codec, created, 5_000_000_000L, mixed(false)));
                Compression target = Compression.of(codec).build();
                MemoryRecords sent = build(magic, codec, created, 0, mixed(false));
                up(codec.name + "-" + magic, codec, target, TimestampType.CREATE_TIME, sent);
                up(codec.name + "-" + magic + "-append-time", codec, target, TimestampType.LOG_APPEND_TIME,
                    build(magic, codec, created, 0, mixed(false)));
                cleaned(codec.name + "-" + magic, magic, set, Set.of(5_000_000_001L, 5_000_000_003L));
            }
        }
        up("none-1-to-gzip", CompressionType.NONE, Compression.gzip().build(), TimestampType.CREATE_TIME,
            build((byte) 1, CompressionType.NONE, TimestampType.CREATE_TIME, 0, mixed(false)));
        up("gzip-0-to-none", CompressionType.GZIP, Compression.NONE, TimestampType.CREATE_TIME,
            build((byte) 0, CompressionType.GZIP, TimestampType.NO_TIMESTAMP_TYPE, 0, mixed(false)));
        for (CompressionType codec : CODECS) {
            MemoryRecords set = add("built", codec.name + "-1-append-time", 1, "",
                build((byte) 1, codec, TimestampType.LOG_APPEND_TIME, 100, mixed(false)));
            cleaned(codec.name + "-1-append-time", 1, set, Set.of(102L, 103L));
            down(codec.name + "-1-append-time", 0, 0, set);
            down(codec.name + "-1", 0, 101, build((byte) 1, codec, TimestampType.CREATE_TIME, 100, mixed(false)));
            for (byte magic = 0; magic < 2; magic++) {
                down(codec.name + "-2", magic, 0,
                    build((byte) 2, codec, TimestampType.CREATE_TIME, 100, mixed(true)));
                down(codec.name + "-2-append-time", magic, 0,
                    build((byte) 2, codec, TimestampType.LOG_APPEND_TIME, 100, mixed(true)));
                down(codec.name + "-2-from-the-middle", magic, 102,
                    build((byte) 2, codec, TimestampType.CREATE_TIME, 100, mixed(true)));
            }
        }
        MemoryRecords all = join(
            build((byte) 0, CompressionType.NONE, TimestampType.NO_TIMESTAMP_TYPE, 10, mixed(false)),
            build((byte) 0, CompressionType.LZ4, TimestampType.NO_TIMESTAMP_TYPE, 15, mixed(false)),
            build((byte) 1, CompressionType.NONE, TimestampType.CREATE_TIME, 20, mixed(false)),
            build((byte) 1, CompressionType.LZ4, TimestampType.CREATE_TIME, 25, mixed(false)),
            build((byte) 2, CompressionType.NONE, TimestampType.CREATE_TIME, 30, 4711, true, mixed(true)),
            MemoryRecords.withEndTransactionMarker(35, T, 9, 4711, (short) 3,
                new EndTransactionMarker(ControlRecordType.COMMIT, 77)),
            build((byte) 2, CompressionType.SNAPPY, TimestampType.CREATE_TIME, 36, mixed(true)));
        for (byte magic = 0; magic < 2; magic++) {
            down("all", magic, 0, all);
            down("all-from-the-middle", magic, 32, all);
        }
        System.out.println("[\n" + String.join(",\n", cases) + "\n]");
    }
}
