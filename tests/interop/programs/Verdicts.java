import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka's own LogValidator says of batches: one line each, an error or the batch's largest timestamp afterwards.
 * Standard input: time in ms (int64), how far timestamps may be off (int64), compacted (byte), then for each batch its
 * size (int32) and bytes; size -1 ends it.
 */
public class Verdicts {
    static final TopicPartition PARTITION = new TopicPartition("flights", 0);

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        PrintStream out = new PrintStream(System.out, false);
        long now = in.readLong();
        long range = in.readLong();
        boolean compacted = in.readByte() != 0;
        Time time = (Time) Proxy.newProxyInstance(Verdicts.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, values) -> method.getName().equals("nanoseconds") ? now * 1_000_000L : now);
        LogValidator.MetricsRecorder metrics = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(
            Verdicts.class.getClassLoader(), new Class<?>[] {LogValidator.MetricsRecorder.class},
            (proxy, method, values) -> null);
        BufferSupplier buffers = BufferSupplier.create();
        for (int size = in.readInt(); size >= 0; size = in.readInt()) {
            byte[] data = new byte[size];
            in.readFully(data);
            out.println(verdict(data, time, metrics, buffers, range, compacted));
        }
        out.flush();
    }

    static String verdict(byte[] data, Time time, LogValidator.MetricsRecorder metrics, BufferSupplier buffers,
                          long range, boolean compacted) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
            CompressionType source = analyze(records);
            LogValidator validator = new LogValidator(records, PARTITION, time, source, Compression.of(source).build(),
                compacted, RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, range, range, 0, AppendOrigin.CLIENT,
                MetadataVersion.latestProduction());
            LogValidator.ValidationResult result =
                validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), metrics, buffers);
            return Long.toString(result.validatedRecords.batches().iterator().next().maxTimestamp());
        } catch (RecordValidationException e) {
            return Errors.forException(e.invalidException()).name();
        } catch (Throwable e) {
            return Errors.forException(e).name();
        }
    }

    /** What ProduceRequest.validateRecords and UnifiedLog.analyzeAndValidateRecords check before. */
    static CompressionType analyze(MemoryRecords records) {
        CompressionType source = CompressionType.NONE;
        int batches = 0;
        for (MutableRecordBatch batch : records.batches()) {
            if (++batches > 1 || batch.magic() != RecordBatch.MAGIC_VALUE_V2 || batch.baseOffset() != 0)
                throw new InvalidRecordException("batch");
            if (!batch.isValid())
                throw new CorruptRecordException("checksum");
            if (batch.compressionType() != CompressionType.NONE)
                source = batch.compressionType();
        }
        if (batches == 0)
            throw new InvalidRecordException("no batch");
        return source;
    }
}
