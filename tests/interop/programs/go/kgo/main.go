// franz-go: an idempotent producer with each codec, keys, headers and timestamps; a cooperative group of two that
// becomes one; committed offsets and admin calls by kadm. Arguments: broker address, topic (not there yet).
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 6
	records    = 3000
)

// An hour ago: old enough to differ from append time, too young for retention.
var firstTime = time.Now().UnixMilli() - 3600000

func check(truth bool, format string, arguments ...any) {
	if !truth {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "%v", err)
	return value
}

func produce(ctx context.Context, address, topic string) {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	share := records / len(codecs)
	for index, codec := range codecs {
		client := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner())))
		batch := []*kgo.Record{}
		for n := index * share; n < (index+1)*share; n++ {
			record := &kgo.Record{
				Topic: topic, Partition: int32(n % partitions), Timestamp: time.UnixMilli(firstTime + int64(n)),
				Key: []byte(fmt.Sprintf("key-%d", n%11)), Value: []byte(fmt.Sprintf("value-%d", n)),
				Headers: []kgo.RecordHeader{{Key: "number", Value: []byte(fmt.Sprint(n))}, {Key: "nothing"}},
			}
			if n%100 == 99 {
				record.Value = nil
			}
			batch = append(batch, record)
		}
		for _, result := range client.ProduceSync(ctx, batch...) {
			check(result.Err == nil, "produce: %v", result.Err)
		}
		client.Close()
	}
}

type crowd struct {
	sync.Mutex
	seen  map[int]int
	given [2]int
}

func (c *crowd) until(what string, truth func() bool) {
	end := time.Now().Add(60 * time.Second)
	for {
		c.Lock()
		holds := truth()
		c.Unlock()
		if holds {
			return
		}
		check(time.Now().Before(end), "not within 60 s: %s", what)
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *crowd) member(ctx context.Context, address, topic string, index int) (*kgo.Client, chan struct{}) {
	count := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			c.Lock()
			defer c.Unlock()
			c.given[index] += sign * len(moved[topic])
		}
	}
	client := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumerGroup(topic+"-group"),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.SessionTimeout(10*time.Second), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(count(1)), kgo.OnPartitionsRevoked(count(-1)), kgo.OnPartitionsLost(count(-1))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			polling, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			fetches := client.PollRecords(polling, 200)
			cancel()
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			fetches.EachRecord(func(record *kgo.Record) {
				n := int(record.Offset)*partitions + int(record.Partition)
				check(record.Timestamp.UnixMilli() == firstTime+int64(n), "time of %d", n)
				check(string(record.Key) == fmt.Sprintf("key-%d", n%11), "key of %d", n)
				check(len(record.Headers) == 2 && string(record.Headers[0].Value) == fmt.Sprint(n), "headers of %d", n)
				check(record.Headers[1].Value == nil, "null header of %d", n)
				if n%100 == 99 {
					check(record.Value == nil, "null value of %d", n)
				} else {
					check(string(record.Value) == fmt.Sprintf("value-%d", n), "value of %d", n)
				}
				c.Lock()
				c.seen[n]++
				c.Unlock()
			})
			if found := fetches.Records(); len(found) > 0 {
				check(client.CommitRecords(ctx, found...) == nil, "commit")
			}
			client.AllowRebalance()
		}
	}()
	return client, done
}

func main() {
	address, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	admin := kadm.NewClient(must(kgo.NewClient(kgo.SeedBrokers(address))))
	check(must(admin.CreateTopic(ctx, partitions, 1, nil, topic)).Err == nil, "create")
	produce(ctx, address, topic)

	group := &crowd{seen: map[int]int{}}
	first, firstDone := group.member(ctx, address, topic, 0)
	group.until("the first member has all", func() bool { return group.given[0] == partitions })
	second, _ := group.member(ctx, address, topic, 1)
	group.until("both members have three", func() bool { return group.given[0] == 3 && group.given[1] == 3 })
	described := must(admin.DescribeGroups(ctx, topic+"-group"))[topic+"-group"]
	check(described.State == "Stable" && len(described.Members) == 2, "group: %v", described)
	first.CloseAllowingRebalance()
	<-firstDone
	group.until("the second member has all", func() bool { return group.given[1] == partitions })
	group.until("every record was seen", func() bool { return len(group.seen) == records })
	time.Sleep(200 * time.Millisecond)
	second.CloseAllowingRebalance()

	committed := must(admin.FetchOffsets(ctx, topic+"-group"))
	for partition := int32(0); partition < partitions; partition++ {
		offset, there := committed.Lookup(topic, partition)
		check(there && offset.At == records/partitions, "committed: %v", committed)
	}
	ends := must(admin.ListEndOffsets(ctx, topic))
	ends.Each(func(end kadm.ListedOffset) { check(end.Offset == records/partitions, "end: %v", end) })
	at := must(admin.ListOffsetsAfterMilli(ctx, firstTime+6*100, topic))
	offset, _ := at.Lookup(topic, 0)
	check(offset.Offset == 100, "by time: %v", offset)
	must(admin.DeleteRecords(ctx, kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 10, LeaderEpoch: -1}}}))
	starts := must(admin.ListStartOffsets(ctx, topic))
	start, _ := starts.Lookup(topic, 0)
	check(start.Offset == 10, "start: %v", start)
	configs := must(admin.DescribeTopicConfigs(ctx, topic))
	check(len(configs[0].Configs) > 20, "configs: %v", configs)
	check(must(admin.DeleteGroup(ctx, topic+"-group")).Err == nil, "delete group")
	check(must(admin.DeleteTopic(ctx, topic)).Err == nil, "delete topic")
	fmt.Println("ok")
}
