%% SPDX-License-Identifier: Apache-2.0
%% The workloads in Erlang. A channel is a process's mailbox, which has no bound, so what needs a channel with back-pressure
%% or with several receivers is left out; so are locks, which it does without, and calls that block a thread.
-module(bench).
-export([main/1]).

workloads() ->
    #{"yield1" => each(yields(1)), "yield2" => each(yields(2)), "yield100" => each(yields(100)), "yield10000" => each(yields(10000)),
      "spawn_join" => each(fun spawn_join/1), "spawn_batch" => each(fun spawn_batch/1),
      "parked" => fun parked/2, "handoff" => each(fun handoff/1), "idle1000" => fun idle/2,
      "chan_pingpong" => each(fun pingpong/1), "skynet" => fun skynet/2, "fib" => fun fib/2,
      "timer_stop" => each(fun timer_stop/1), "sleepers" => fun sleepers/2, "sleeper" => fun sleeper/2,
      "serve_echo" => fun(_, _) -> serve([{packet, raw}], fun echo/1) end,
      "serve_http" => fun(_, _) -> serve([{packet, http_bin}], fun greet/1) end}.

main(["--list"]) ->
    [io:format("~s~n", [Name]) || Name <- lists:sort(maps:keys(workloads()))],
    halt(0);
main([Name, N]) ->
    case workloads() of
        #{Name := Run} -> Run(Name, list_to_integer(N)), halt(0);
        _ -> usage()
    end;
main(_) -> usage().

usage() ->
    io:format(standard_error, "usage: bench_erlang --list | WORKLOAD N~n", []),
    halt(2).

report(Metric, Value, Unit) -> io:format("RESULT ~s ~.4f ~s~n", [Metric, float(Value), Unit]).
now_ns() -> erlang:monotonic_time(nanosecond).

%% F(N) does N operations. The tenth that goes before is not timed.
each(F) ->
    fun(Name, N) ->
        F(N div 10 + 1),
        Start = now_ns(),
        F(N),
        report(Name, (now_ns() - Start) / N, "ns")
    end.

times(0, _) -> ok;
times(N, F) -> F(), times(N - 1, F).

%% Starts K processes and waits for their end.
crew(K, F) ->
    Self = self(),
    [spawn(fun() -> F(I), Self ! done end) || I <- lists:seq(1, K)],
    times(K, fun() -> receive done -> ok end end).

yields(K) -> fun(N) -> crew(K, fun(_) -> times(N div K, fun erlang:yield/0) end) end.

spawn_join(N) ->
    times(N, fun() ->
        {_, Ref} = spawn_monitor(fun() -> ok end),
        receive {'DOWN', Ref, _, _, _} -> ok end
    end).

spawn_batch(N) ->
    Self = self(),
    times(N, fun() -> spawn(fun() -> Self ! done end) end),
    times(N, fun() -> receive done -> ok end end).

%% VmRSS + VmPTE in bytes.
memory() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, Found} = re:run(Status, "Vm(?:RSS|PTE):\\s*(\\d+)", [global, {capture, all_but_first, list}]),
    1024 * lists:sum([list_to_integer(K) || [K] <- Found]).

parked(_, N) ->
    Self = self(),
    Before = memory(),
    Start = now_ns(),
    All = [spawn(fun() -> Self ! there, receive go -> Self ! done end end) || _ <- lists:seq(1, N)],
    times(N, fun() -> receive there -> ok end end),
    Spawned = now_ns() - Start,
    Bytes = memory() - Before,
    Wake = now_ns(),
    [P ! go || P <- All],
    times(N, fun() -> receive done -> ok end end),
    Woken = now_ns() - Wake,
    report("parked_bytes", Bytes / N, "B"),
    report("parked_spawn", Spawned / N, "ns"),
    report("parked_wake", Woken / N, "ns").

%% One wakes another and computes on, until it sees that the other has run.
handoff(N) ->
    Seen = atomics:new(1, []),
    Other = spawn(fun() -> mark(Seen) end),
    [begin Other ! I, spin(Seen, I) end || I <- lists:seq(1, N)],
    Other ! stop.

mark(Seen) ->
    receive
        stop -> ok;
        I -> atomics:put(Seen, 1, I), mark(Seen)
    end.

spin(Seen, I) ->
    case atomics:get(Seen, 1) of
        I -> ok;
        _ -> spin(Seen, I)
    end.

%% CPU time of all threads.
cpu_us() ->
    Used = fun(File) ->
        {ok, Text} = file:read_file(File),
        list_to_integer(hd(string:lexemes(binary_to_list(Text), " ")))
    end,
    lists:sum([Used(F) || F <- filelib:wildcard("/proc/self/task/*/schedstat")]) / 1000.

idle(Name, Milliseconds) ->
    [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, 1000)],
    timer:sleep(300),
    Before = cpu_us(),
    timer:sleep(Milliseconds),
    report(Name, (cpu_us() - Before) * 1000 / Milliseconds, "us/s").

pingpong(N) ->
    Self = self(),
    Other = spawn(fun() -> pong(Self) end),
    times(N, fun() -> Other ! ping, receive pong -> ok end end),
    Other ! stop.

pong(To) ->
    receive
        ping -> To ! pong, pong(To);
        stop -> ok
    end.

skynet(Name, N) ->
    [begin
        Start = now_ns(),
        node(self(), 0, N),
        Sum = N * (N - 1) div 2,
        receive Sum -> ok end,
        Round =:= 2 andalso report(Name, (now_ns() - Start) / 1.0e6, "ms")
     end || Round <- [1, 2]].

node(Out, Number, Size) -> spawn(fun() -> tree(Out, Number, Size) end).

tree(Out, Number, 1) -> Out ! Number;
tree(Out, Number, Size) ->
    Part = Size div 10,
    [node(self(), Number + I * Part, Part) || I <- lists:seq(0, 9)],
    Out ! lists:sum([receive V -> V end || _ <- lists:seq(1, 10)]).

fib_sequential(N) when N < 2 -> N;
fib_sequential(N) -> fib_sequential(N - 1) + fib_sequential(N - 2).

fib_forked(N) when N =< 12 -> fib_sequential(N);
fib_forked(N) ->
    Self = self(),
    Left = spawn(fun() -> Self ! {self(), fib_forked(N - 1)} end),
    Right = fib_forked(N - 2),
    receive {Left, V} -> V + Right end.

fib(Name, N) ->
    Expected = fib_sequential(N),
    fib_forked(N - 5),
    Start = now_ns(),
    Expected = fib_forked(N),
    report(Name, (now_ns() - Start) / 1.0e6, "ms").

timer_stop(N) -> times(N, fun() -> erlang:cancel_timer(erlang:start_timer(3600000, self(), late)) end).

sleepers(Name, N) ->
    Start = now_ns(),
    crew(N, fun(I) -> timer:sleep(1 + I rem 1000) end),
    report(Name, (now_ns() - Start) / 1.0e6, "ms").

sleeper(_, N) ->
    [spawn(fun hog/0) || _ <- [1, 2]],
    Late = lists:sort([begin
        Start = now_ns(),
        timer:sleep(1),
        (now_ns() - Start) / 1.0e6 - 1
    end || _ <- lists:seq(1, N)]),
    report("sleeper_p50", lists:nth(N div 2 + 1, Late), "ms"),
    report("sleeper_p99", lists:nth(N * 99 div 100 + 1, Late), "ms").

hog() -> hog().

%% A process per connection.
serve(Options, Talk) ->
    {ok, L} = gen_tcp:listen(0, [binary, {active, false}, {nodelay, true}, {backlog, 4096}, {ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = inet:port(L),
    io:format("PORT ~b~n", [Port]),
    accept(L, Talk).

accept(L, Talk) ->
    {ok, S} = gen_tcp:accept(L),
    P = spawn(fun() -> receive go -> Talk(S) end end),
    ok = gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L, Talk).

echo(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Data} -> gen_tcp:send(S, Data), echo(S);
        _ -> gen_tcp:close(S)
    end.

greet(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, http_eoh} ->
            gen_tcp:send(S, <<"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\nHello, world!\n">>),
            greet(S);
        {ok, _} -> greet(S);
        _ -> gen_tcp:close(S)
    end.
