-- Who may call the functions, and by which names they find what they use.
--
-- A role needs the right to execute functions, beside its rights to tables: that of a fleet, one that only reads, and those of programs
-- that call postgres.CompleteTx, or operator.TriggerIn and DefineIn, in transactions of their own:
--
--   GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA rota TO rota;
--   GRANT EXECUTE ON FUNCTION rota.get, rota.list, rota.changes, rota.last, rota.check_primary TO grafana;
--   GRANT EXECUTE ON FUNCTION rota.complete_run TO app;
--   GRANT EXECUTE ON FUNCTION rota.post TO app;

-- The names in a function mean the same for each caller: nobody can put another function or operator before those of the server. All have
-- the setting, since a plan is made again when it changes: a commit of one entry takes 8 µs more.
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace WHERE c.oid = 'rota.kv'::regclass LOOP
		EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', f);
	END LOOP;
END $$;

-- These wait for a statement that locks a table, such as VACUUM FULL, for no longer than commits do. A client that does not get an answer
-- connects again: without a bound, each of its connections would go on waiting.
ALTER FUNCTION rota.get SET lock_timeout = '4s';
ALTER FUNCTION rota.list SET lock_timeout = '4s';
ALTER FUNCTION rota.changes SET lock_timeout = '4s';
ALTER FUNCTION rota.open_session SET lock_timeout = '4s';
ALTER FUNCTION rota.renew_session SET lock_timeout = '4s';
ALTER FUNCTION rota.tick SET lock_timeout = '4s';
ALTER FUNCTION rota.prune_ends SET lock_timeout = '4s';

-- No function is for everybody: start_commit holds up all commits until its transaction ends. Roles that have had the rights to tables keep
-- what they could do.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rota FROM PUBLIC;

DO $$
DECLARE
	g record;
BEGIN
	FOR g IN
		WITH rights AS (
			SELECT c.oid AS of, a.* FROM pg_class c, aclexplode(c.relacl) a
			UNION ALL
			SELECT t.attrelid, a.* FROM pg_attribute t, aclexplode(t.attacl) a
		)
		SELECT DISTINCT n.functions, CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE r.grantee::regrole::text END AS role
		FROM rights r JOIN (VALUES
			('rota.kv'::regclass, 'INSERT', 'ALL FUNCTIONS IN SCHEMA rota'),
			('rota.kv'::regclass, 'SELECT', 'FUNCTION rota.get, rota.list, rota.changes, rota.last, rota.check_primary'),
			('rota.gate'::regclass, 'INSERT', 'FUNCTION rota.complete_run'),
			('rota.post'::regclass, 'INSERT', 'FUNCTION rota.post')
		) n (of, kind, functions) ON n.of = r.of AND n.kind = r.privilege_type
	LOOP
		EXECUTE format('GRANT EXECUTE ON %s TO %s', g.functions, g.role);
	END LOOP;
END $$;
