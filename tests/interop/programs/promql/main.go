// Evaluates queries with Prometheus's own engine on scrapes that it reads from standard input:
// {"scrapes": [{"INSTANCE": "TEXT", …}, …], "queries": ["QUERY", …]}. The scrapes are 15 seconds apart.
// Prints, for each query, how many series it finds at the time of the last scrape, or a tab and the error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

const job = "ottla-test"
const apart = 15_000

type input struct {
	Scrapes []map[string]string `json:"scrapes"`
	Queries []string            `json:"queries"`
}

type memory struct {
	series map[string]*promql.Series
}

func (m *memory) add(instance, text string, at int64) error {
	parser := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var found labels.Labels
		_, _, value := parser.Series()
		parser.Labels(&found)
		builder := labels.NewBuilder(found)
		builder.Set("job", job).Set("instance", instance)
		full := builder.Labels()
		series := m.series[full.String()]
		if series == nil {
			series = &promql.Series{Metric: full}
			m.series[full.String()] = series
		}
		series.Floats = append(series.Floats, promql.FPoint{T: at, F: value})
	}
}

func (m *memory) Querier(_, _ int64) (storage.Querier, error) { return m, nil }

func (m *memory) Close() error { return nil }

func (m *memory) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (m *memory) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (m *memory) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{}
next:
	for _, series := range m.series {
		for _, matcher := range matchers {
			if !matcher.Matches(series.Metric.Get(matcher.Name)) {
				continue next
			}
		}
		found.series = append(found.series, promql.NewStorageSeries(*series))
	}
	return found
}

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at <= len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func main() {
	var given input
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stored := &memory{series: map[string]*promql.Series{}}
	start := time.Now().Add(-time.Hour)
	last := start
	for number, scrape := range given.Scrapes {
		last = start.Add(time.Duration(number*apart) * time.Millisecond)
		for instance, text := range scrape {
			if err := stored.add(instance, text, last.UnixMilli()); err != nil {
				fmt.Fprintln(os.Stderr, instance, err)
				os.Exit(1)
			}
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})
	for _, text := range given.Queries {
		query, err := engine.NewInstantQuery(context.Background(), stored, nil, text, last)
		if err != nil {
			fmt.Printf("\t%v\n", err)
			continue
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			fmt.Printf("\t%v\n", err)
			continue
		}
		fmt.Println(len(vector))
	}
}
