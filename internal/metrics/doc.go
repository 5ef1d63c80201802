// Package metrics counts what policyd does and serves it to Prometheus, on a listener that only this host reaches.
//
// Every metric stands in one table ([Table]), which docs/metrics.md is made from; a metric that is not there cannot be
// recorded. No label holds what users choose (names of policies, users, labels of Smack): the number of series is bounded
// by policyd's own words, and a scrape tells nobody which policies there are.
//
//	table.go    the metrics: names, labels, what they mean
//	metrics.go  what is counted as it happens
//	rpc.go      calls, as an interceptor of gRPC sees them
//	state.go    what is looked up when somebody asks
//	listen.go   where it is served
//
// It imports the API's messages and internal/buildinfo.
package metrics
