// Reads Prometheus text from standard input and prints what promtool would say of it, a line per problem:
// the metric, a tab, and the problem. Text that Prometheus's own parser refuses ends it with 1.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func main() {
	problems, err := promlint.New(os.Stdin).Lint()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, problem := range problems {
		fmt.Printf("%s\t%s\n", problem.Metric, problem.Text)
	}
}
