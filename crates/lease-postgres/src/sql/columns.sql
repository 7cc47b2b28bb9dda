-- The columns of the table $1, as it is: name, type, NOT NULL, in the primary key, filled without a value; and of the table, whether
-- it is one that a crash leaves alone. No row when there is none.
SELECT attribute.attname::text,
       format_type(attribute.atttypid, attribute.atttypmod) || CASE WHEN EXISTS (
           SELECT FROM pg_catalog.pg_collation AS rule
           WHERE rule.oid = attribute.attcollation AND NOT rule.collisdeterministic
       ) THEN ' with a nondeterministic collation' ELSE '' END,
       attribute.attnotnull,
       EXISTS (
           SELECT FROM pg_catalog.pg_constraint AS key
           WHERE key.conrelid = attribute.attrelid AND key.contype = 'p' AND attribute.attnum = ANY (key.conkey)
       ),
       attribute.atthasdef OR attribute.attidentity <> '',
       class.relkind IN ('r', 'p') AND class.relpersistence = 'p'
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = class.oid
WHERE class.oid = to_regclass($1) AND attribute.attnum > 0 AND NOT attribute.attisdropped
ORDER BY attribute.attnum;
