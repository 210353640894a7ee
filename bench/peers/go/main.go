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
	"fib":                 fib,
	"yield_of":            yieldOf,
	"pairs_of":            pairsOf,
	"mutex_of":            mutexOf,
	"timers_of":           timersOf,
	"matmul":              matmul,
	"serve_echo":          serveEcho,
	"serve_http":          serveHTTP,
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
	"roundtrip1":          nsPerOp(echo(1)),
	"roundtrip64":         nsPerOp(echo(64)),
	"context_cancel":      nsPerOp(contextCancel),
	"handoff":             nsPerOp(handoff),
	"idle1000":            idle,
	"blocking_getppid":    nsPerOp(getppid),
	"sleeps_announced":    sleeps,
	"sleeper":             sleeper,

	"list_pingpong_hog":           nsPerOp(pingPongHog),
	"list_create_chain":           nsPerOp(createChain),
	"list_create_chains":          nsPerOp(createChains),
	"list_create_capture":         nsPerOp(createCapture),
	"list_stack_10":               nsPerOp(stackGrowth(10)),
	"list_stack_1024":             nsPerOp(stackGrowth(1024)),
	"list_wakeup_spin_0":          nsPerOp(wakeup(0, false)),
	"list_wakeup_spin_10":         nsPerOp(wakeup(10, false)),
	"list_wakeup_spin_100":        nsPerOp(wakeup(100, false)),
	"list_wakeup_syscall_10":      nsPerOp(wakeup(10, true)),
	"list_wakeup_syscall_100":     nsPerOp(wakeup(100, true)),
	"list_syscall":                nsPerOp(syscalls(0, 1)),
	"list_syscall_work":           nsPerOp(syscalls(100, 1)),
	"list_syscall_excess":         nsPerOp(syscalls(0, 4)),
	"list_syscall_excess_work":    nsPerOp(syscalls(100, 4)),
	"list_make_chan":              nsPerOp(makeChan),
	"list_chan_nonblocking":       nsPerOp(chanNonblocking),
	"list_chan_closed":            nsPerOp(chanClosed),
	"list_select_uncontended":     nsPerOp(selectUncontended),
	"list_select_async_contended": nsPerOp(selectAsyncContended),
	"list_select_sync_contended":  nsPerOp(selectSyncContended),
	"list_select_nonblock":        nsPerOp(selectNonblock),
	"list_chan_uncontended":       nsPerOp(chanUncontended),
	"list_chan_contended":         nsPerOp(chanContended),
	"list_chan_sync":              nsPerOp(chanSync(0)),
	"list_chan_sync_work":         nsPerOp(chanSync(1000)),
	"list_prodcons_0":             nsPerOp(prodCons(0, 0)),
	"list_prodcons_10":            nsPerOp(prodCons(10, 0)),
	"list_prodcons_100":           nsPerOp(prodCons(100, 0)),
	"list_prodcons_work_0":        nsPerOp(prodCons(0, 100)),
	"list_prodcons_work_10":       nsPerOp(prodCons(10, 100)),
	"list_prodcons_work_100":      nsPerOp(prodCons(100, 100)),
	"list_select_prodcons":        nsPerOp(selectProdCons),
	"list_drain_closed":           nsPerOp(drainClosed),
	"list_chan_creation":          nsPerOp(chanCreation),
	"list_chan_semaphore":         nsPerOp(chanSemaphore),
	"list_chan_popular":           nsPerOp(chanPopular),

	"list_mutex_uncontended":     nsPerOp(mutexUncontended),
	"list_mutex":                 nsPerOp(mutexShared(0, 1)),
	"list_mutex_slack":           nsPerOp(mutexShared(0, 10)),
	"list_mutex_work":            nsPerOp(mutexShared(100, 1)),
	"list_mutex_work_slack":      nsPerOp(mutexShared(100, 10)),
	"list_mutex_no_spin":         nsPerOp(mutexNoSpin),
	"list_mutex_spin":            nsPerOp(mutexSpin),
	"list_rwmutex_uncontended":   nsPerOp(rwMutexUncontended),
	"list_rwmutex_write100":      nsPerOp(rwMutex(100, 0)),
	"list_rwmutex_write10":       nsPerOp(rwMutex(10, 0)),
	"list_rwmutex_work_write100": nsPerOp(rwMutex(100, 100)),
	"list_rwmutex_work_write10":  nsPerOp(rwMutex(10, 100)),
	"list_wg_uncontended":        nsPerOp(wgUncontended),
	"list_wg_add_done":           nsPerOp(wgAddDone(0)),
	"list_wg_add_done_work":      nsPerOp(wgAddDone(100)),
	"list_wg_wait":               nsPerOp(wgWait(0)),
	"list_wg_wait_work":          nsPerOp(wgWait(100)),
	"list_wg_actually_wait":      nsPerOp(wgActuallyWait),
	"list_once":                  nsPerOp(once),
	"list_once_value":            nsPerOp(onceValue),
	"list_cond_1":                nsPerOp(cond(1)),
	"list_cond_8":                nsPerOp(cond(8)),
	"list_cond_32":               nsPerOp(cond(32)),

	"list_after_func_chain":       planted(afterFuncChain),
	"list_after_func_at_once":     planted(afterFuncAtOnce),
	"list_after":                  planted(after),
	"list_timer_stop_chan":        planted(stopChan),
	"list_timer_stop_func":        planted(stopFunc),
	"list_timer_start_stop":       planted(startStop),
	"list_timer_reset":            planted(timerReset),
	"list_sleep1000":              planted(sleep1000),
	"list_ticker":                 planted(tickerRun),
	"list_ticker_reset":           planted(tickerReset),
	"list_timer_latency":          timerLatency,
	"list_context_common_parent":  nsPerOp(contextCommonParent),
	"list_context_timeout_40":     contextTimeout(40),
	"list_context_timeout_4000":   contextTimeout(4000),
	"list_context_timeout_400000": contextTimeout(400_000),
	"list_context_tree_1":         nsPerOp(contextTree(1)),
	"list_context_tree_10":        nsPerOp(contextTree(10)),
	"list_context_tree_100":       nsPerOp(contextTree(100)),
	"list_context_tree_1000":      nsPerOp(contextTree(1000)),
	"list_context_canceled":       nsPerOp(contextCanceled),
	"list_context_done":           nsPerOp(contextDone),
	"list_context_value_10":       nsPerOp(contextValue(10)),
	"list_context_value_100":      nsPerOp(contextValue(100)),

	"list_tcp_oneshot":            nsPerOp(tcpOneshot(false)),
	"list_tcp_oneshot_timeout":    nsPerOp(tcpOneshot(true)),
	"list_tcp_persistent":         nsPerOp(tcpPersistent(false)),
	"list_tcp_persistent_timeout": nsPerOp(tcpPersistent(true)),
	"list_tcp_concurrent":         nsPerOp(tcpConcurrent),
	"list_set_read_deadline":      nsPerOp(setReadDeadline),
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
