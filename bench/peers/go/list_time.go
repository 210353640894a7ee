// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// f as usual, among 32 768 timers a P that are due in an hour.
func planted(f func(n int)) func(name string, n int) {
	return func(name string, n int) {
		others := make([]*time.Timer, 32768*runtime.GOMAXPROCS(0))
		for i := range others {
			others[i] = time.AfterFunc(time.Hour, func() {})
		}
		nsPerOp(f)(name, n)
		for _, t := range others {
			t.Stop()
		}
	}
}

// Each timer starts the next one; 1000 a chain.
func afterFuncChain(n int) {
	parallel(n/1000+1, func(turns int) {
		for range turns {
			done, left := make(chan struct{}), 1000
			var step func()
			step = func() {
				left--
				if left >= 0 {
					time.AfterFunc(0, step)
				} else {
					done <- struct{}{}
				}
			}
			time.AfterFunc(0, step)
			<-done
		}
	})
}

func afterFuncAtOnce(n int) {
	parallel(n/1000+1, func(turns int) {
		for range turns {
			var wg sync.WaitGroup
			wg.Add(1000)
			for range 1000 {
				time.AfterFunc(0, func() { wg.Done() })
			}
			wg.Wait()
		}
	})
}

func after(n int) {
	parallel(n, func(turns int) {
		for range turns {
			<-time.After(1)
		}
	})
}

func stopChan(n int) {
	parallel(n, func(turns int) {
		for range turns {
			time.NewTimer(time.Hour).Stop()
		}
	})
}

func stopFunc(n int) {
	parallel(n, func(turns int) {
		for range turns {
			time.AfterFunc(time.Hour, func() {}).Stop()
		}
	})
}

// 1000 are set, then all are stopped.
func startStop(n int) {
	parallel(n/1000+1, func(turns int) {
		timers := make([]*time.Timer, 1000)
		for range turns {
			for i := range timers {
				timers[i] = time.AfterFunc(time.Hour, func() {})
			}
			for _, t := range timers {
				t.Stop()
			}
		}
	})
}

func timerReset(n int) {
	parallel(n, func(turns int) {
		t := time.NewTimer(time.Hour)
		for range turns {
			t.Reset(time.Hour)
		}
		t.Stop()
	})
}

// 1000 goroutines sleep for a nanosecond.
func sleep1000(n int) {
	parallel(n/1000+1, func(turns int) {
		for range turns {
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() { time.Sleep(1) })
			}
			wg.Wait()
		}
	})
}

func tickerRun(n int) {
	parallel(n, func(turns int) {
		t := time.NewTicker(1)
		for range turns {
			<-t.C
		}
		t.Stop()
	})
}

func tickerReset(n int) {
	parallel(n, func(turns int) {
		t := time.NewTicker(1)
		for i := range turns {
			t.Reset(time.Duration(2 + i%2))
		}
		t.Stop()
	})
}

// Timers of 1 ms on the other Ps while their maker computes: how late they are on average.
func timerLatency(name string, n int) {
	sum := 0.0
	for range n {
		var fired atomic.Bool
		var at time.Time
		due := time.Now().Add(time.Millisecond)
		time.AfterFunc(time.Millisecond, func() {
			at = time.Now()
			fired.Store(true)
		})
		for !fired.Load() {
		}
		sum += float64(at.Sub(due).Nanoseconds()) / 1e3
	}
	report(name, sum/float64(n), "us")
}

func contextCommonParent(n int) {
	root, cancelRoot := context.WithCancel(context.Background())
	parallel(n, func(turns int) {
		for range turns {
			_, cancel := context.WithCancel(root)
			cancel()
		}
	})
	cancelRoot()
}

// 10 are made and cancelled a turn, among `live` others.
func contextTimeout(live int) func(name string, n int) {
	return func(name string, n int) {
		others := make([]context.CancelFunc, live)
		for i := range others {
			_, others[i] = context.WithTimeout(context.Background(), time.Hour+time.Duration(i)*time.Second)
		}
		nsPerOp(func(n int) {
			parallel(n, func(turns int) {
				var ten [10]context.CancelFunc
				for range turns {
					for i := range ten {
						_, ten[i] = context.WithTimeout(context.Background(), time.Hour)
					}
					for _, cancel := range ten {
						cancel()
					}
				}
			})
		})(name, n)
		for _, cancel := range others {
			cancel()
		}
	}
}

func contextTree(depth int) func(n int) {
	return func(n int) {
		for range n {
			root, cancel := context.WithCancel(context.Background())
			chain := []context.Context{root}
			for len(chain) < depth {
				next, unused := context.WithCancel(chain[len(chain)-1])
				_ = unused // the root's goes through all
				chain = append(chain, next)
			}
			cancel()
		}
	}
}

func contextCanceled(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range n {
		if ctx.Err() == nil {
			panic("wrong")
		}
	}
}

func contextDone(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	for range n {
		select {
		case <-ctx.Done():
		default:
		}
	}
	cancel()
}

type contextKey int

func contextValue(depth int) func(n int) {
	return func(n int) {
		ctx := context.WithValue(context.Background(), contextKey(-1), 7)
		for i := range depth {
			ctx = context.WithValue(ctx, contextKey(i), i)
		}
		for range n {
			if ctx.Value(contextKey(-1)) != 7 {
				panic("wrong")
			}
		}
	}
}
