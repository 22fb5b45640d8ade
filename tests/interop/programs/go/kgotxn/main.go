// franz-go: consume-transform-produce in transactions, every third of which is aborted. Arguments: broker address, source
// (with records), target (not there yet). Afterwards the target has each record of the source in upper case, once.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const most = 25

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

func main() {
	address, source, target := os.Args[1], os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	session := must(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.TransactionalID("tx-"+target),
		kgo.ConsumerGroup("group-"+target),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(target),
	))
	defer session.Close()
	admin := kadm.NewClient(session.Client())
	must(admin.CreateTopic(ctx, 1, 1, nil, target))
	total := 0
	for _, end := range must(admin.ListCommittedOffsets(ctx, source))[source] {
		total += int(end.Offset)
	}
	done, aborted := 0, 0
	for number := 0; done < total; number++ {
		fetches := session.PollRecords(ctx, most)
		check(ctx.Err() == nil, "%d of %d were done in time", done, total)
		for _, failure := range fetches.Errors() {
			check(false, "fetch: %v", failure.Err)
		}
		check(session.Begin() == nil, "begin")
		first := kgo.AbortingFirstErrPromise(session.Client())
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			session.Produce(ctx, kgo.StringRecord(strings.ToUpper(string(record.Value))), first.Promise())
		})
		wanted := first.Err() == nil && number%3 != 2
		committed := must(session.End(ctx, kgo.TransactionEndTry(wanted)))
		check(committed == wanted, "commit: wanted %v, got %v", wanted, committed)
		if committed {
			done += count
		} else {
			aborted += count
		}
	}
	check(aborted > 0 && done == total, "%d of %d are done, %d were aborted", done, total, aborted)
	fmt.Println("ok")
}
