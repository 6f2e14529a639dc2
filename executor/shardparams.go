package executor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseShardParams reads Job.ShardParams from a line such as "0=Beijing,1=Shanghai".
// It removes spaces around shards and values. A value may contain any character but a comma.
// For an empty line it returns an empty map.
func ParseShardParams(line string) (map[int]string, error) {
	params := make(map[int]string)
	if strings.TrimSpace(line) == "" {
		return params, nil
	}
	for item := range strings.SplitSeq(line, ",") {
		shard, value, err := parseShardParam(item)
		if err != nil {
			return nil, fmt.Errorf("parse shard params: %.100q: %w", item, err)
		}
		if _, ok := params[shard]; ok {
			return nil, fmt.Errorf("parse shard params: %.100q: shard %d is given twice", item, shard)
		}
		params[shard] = value
	}
	return params, nil
}

func parseShardParam(item string) (shard int, value string, err error) {
	number, value, ok := strings.Cut(item, "=")
	if !ok {
		return 0, "", errors.New("is not of the form shard=value")
	}
	shard, err = strconv.Atoi(strings.TrimSpace(number))
	if err != nil || shard < 0 || shard >= maxShards {
		return 0, "", fmt.Errorf("the shard is not a number from 0 to %d", maxShards-1)
	}
	return shard, strings.TrimSpace(value), nil
}
