// SPDX-License-Identifier: Apache-2.0

// The Go side of every workload, one function each; the protocol is in bench/README.md.
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

var workloads = map[string]func(name string, n int){
	"yield1":              nsPerOp(yields(1)),
	"yield2":              nsPerOp(yields(2)),
	"yield100":            nsPerOp(yields(100)),
	"yield10000":          nsPerOp(yields(10_000)),
	"spawn_join":          nsPerOp(spawnJoin),
	"spawn_batch":         nsPerOp(spawnBatch),
	"parked":              parked,
	"chan_pingpong":       nsPerOp(pingPong),
	"chan_buffered":       nsPerOp(through(1, 128)),
	"chan_buffered_4x4":   nsPerOp(through(4, 128)),
	"chan_unbuffered_4x4": nsPerOp(through(4, 0)),
	"select4":             nsPerOp(select4),
	"select_default":      nsPerOp(selectDefault),
	"close_wakes":         closeWakes,
	"skynet":              skynet,
	"timer_stop":          nsPerOp(timerStop),
	"sleepers":            sleepers,
	"sieve":               sieve,
	"mutex1":              nsPerOp(locks(1)),
	"mutex2":              nsPerOp(locks(2)),
	"mutex100":            nsPerOp(locks(100)),
	"echo1":               nsPerOp(echo(1)),
	"echo64":              nsPerOp(echo(64)),
	"context_cancel":      nsPerOp(contextCancel),
	"handoff":             nsPerOp(handoff),
	"idle1000":            idle,
	"blocking_getppid":    nsPerOp(getppid),
	"sleeps_announced":    sleeps,
	"sleeper":             sleeper,
}

func report(metric string, value float64, unit string) {
	fmt.Printf("RESULT %s %.4f %s\n", metric, value, unit)
}

// f(n) does n operations. The tenth that goes before fills the caches of stacks, so that the steady state is timed.
func nsPerOp(f func(n int)) func(name string, n int) {
	return func(name string, n int) {
		f(n/10 + 1)
		start := time.Now()
		f(n)
		report(name, float64(time.Since(start).Nanoseconds())/float64(n), "ns")
	}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--list" {
		var names []string
		for name := range workloads {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Println(name)
		}
		return
	}
	if len(os.Args) == 3 {
		run, known := workloads[os.Args[1]]
		if n, err := strconv.Atoi(os.Args[2]); known && err == nil && n > 0 {
			run(os.Args[1], n)
			return
		}
	}
	fmt.Fprintf(os.Stderr, "usage: %s --list | WORKLOAD N\n", os.Args[0])
	os.Exit(2)
}
