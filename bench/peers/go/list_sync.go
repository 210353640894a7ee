// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
)

func mutexUncontended(n int) {
	parallel(n, func(turns int) {
		var mu sync.Mutex
		for range turns {
			mu.Lock()
			mu.Unlock()
		}
	})
}

func mutexShared(units, factor int) func(n int) {
	return func(n int) {
		var mu sync.Mutex
		parallelBy(factor, n, func(turns int) {
			for range turns {
				mu.Lock()
				mu.Unlock()
				work(units)
			}
		})
	}
}

// One in four locks; the others touch 32 KiB and give way through a goroutine of their own.
func mutexNoSpin(n int) {
	var mu sync.Mutex
	parallelBy(4, n, func(turns int) {
		data, c := make([]int, 4096), make(chan bool)
		for i := range turns {
			if i%4 == 0 {
				mu.Lock()
				mu.Unlock()
				continue
			}
			for k := 0; k < len(data); k += 4 {
				data[k]++
			}
			go func() { c <- true }()
			<-c
		}
	})
}

// Each locks and then touches 128 KiB.
func mutexSpin(n int) {
	var mu sync.Mutex
	parallel(n, func(turns int) {
		data := make([]int, 16*1024)
		for range turns {
			mu.Lock()
			mu.Unlock()
			for k := 0; k < len(data); k += 4 {
				data[k]++
			}
		}
	})
}

func rwMutexUncontended(n int) {
	parallel(n, func(turns int) {
		var mu sync.RWMutex
		for range turns {
			mu.RLock()
			mu.RLock()
			mu.RUnlock()
			mu.RUnlock()
			mu.Lock()
			mu.Unlock()
		}
	})
}

// One in `every` writes.
func rwMutex(every, units int) func(n int) {
	return func(n int) {
		var mu sync.RWMutex
		parallel(n, func(turns int) {
			for i := 1; i <= turns; i++ {
				if i%every == 0 {
					mu.Lock()
					mu.Unlock()
				} else {
					mu.RLock()
					work(units)
					mu.RUnlock()
				}
			}
		})
	}
}

func wgUncontended(n int) {
	parallel(n, func(turns int) {
		var wg sync.WaitGroup
		for range turns {
			wg.Add(1)
			wg.Done()
			wg.Wait()
		}
	})
}

func wgAddDone(units int) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		parallel(n, func(turns int) {
			for range turns {
				wg.Add(1)
				work(units)
				wg.Done()
			}
		})
	}
}

func wgWait(units int) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		parallel(n, func(turns int) {
			for range turns {
				wg.Wait()
				work(units)
			}
		})
	}
}

func wgActuallyWait(n int) {
	parallel(n, func(turns int) {
		for range turns {
			var wg sync.WaitGroup
			wg.Add(1)
			go func() { wg.Done() }()
			wg.Wait()
		}
	})
}

func once(n int) {
	var o sync.Once
	parallel(n, func(turns int) {
		for range turns {
			o.Do(func() {})
		}
	})
}

func onceValue(n int) {
	value := sync.OnceValue(func() int { return 1 })
	parallel(n, func(turns int) {
		for range turns {
			if value() != 1 {
				panic("wrong")
			}
		}
	})
}

// k + 1 goroutines in a rotating barrier: the last one to come wakes the others.
func cond(k int) func(n int) {
	return func(n int) {
		var mu sync.Mutex
		cv := sync.NewCond(&mu)
		there, round := 0, 0
		var all sync.WaitGroup
		for range k + 1 {
			all.Go(func() {
				mu.Lock()
				for round < n {
					there++
					if there == k+1 {
						there = 0
						round++
						cv.Broadcast()
					} else {
						for now := round; round == now; {
							cv.Wait()
						}
					}
				}
				mu.Unlock()
			})
		}
		all.Wait()
	}
}
