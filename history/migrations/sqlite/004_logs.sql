-- The logs of runs, in pieces.
CREATE TABLE rota_log (
    namespace text NOT NULL,
    grp text NOT NULL,
    job text NOT NULL,
    fire text NOT NULL,
    run_id text NOT NULL,
    instance text NOT NULL,
    fence integer NOT NULL,
    piece integer NOT NULL,
    trigger_no integer NOT NULL,
    shard integer NOT NULL,
    attempt integer NOT NULL,
    line_no integer NOT NULL,
    byte_no integer NOT NULL,
    line_count integer NOT NULL,
    head_pieces integer NOT NULL,
    from_piece integer NOT NULL,
    outcome text NOT NULL,
    failure boolean NOT NULL,
    written_at text NOT NULL,
    bytes integer NOT NULL,
    content text NOT NULL,
    PRIMARY KEY (namespace, grp, job, fire, run_id, instance, fence, piece)
);

CREATE INDEX rota_log_written ON rota_log (namespace, grp, job, written_at);

CREATE INDEX rota_log_age ON rota_log (namespace, grp, written_at, bytes);

CREATE INDEX rota_log_failure ON rota_log (namespace, grp, job, failure, fire, bytes);
