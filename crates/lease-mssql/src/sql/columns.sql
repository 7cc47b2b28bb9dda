-- The columns of the table, as it is: name, type, length in bytes, digits of a second, nullable, collation, in the primary key, filled
-- without a value; and whether it is one that a crash leaves alone. No row when there is none of this name.
SELECT col.name AS outcome,
       TYPE_NAME(col.system_type_id) AS kind,
       CAST(col.max_length AS int) AS bytes,
       CAST(col.scale AS int) AS digits,
       CAST(col.is_nullable AS int) AS nullable,
       col.collation_name AS rule_name,
       CASE WHEN EXISTS (
           SELECT 1
           FROM sys.indexes AS ind
           INNER JOIN sys.index_columns AS part ON part.object_id = ind.object_id AND part.index_id = ind.index_id
           WHERE ind.object_id = col.object_id AND ind.is_primary_key = 1 AND part.column_id = col.column_id
       ) THEN 1 ELSE 0 END AS in_key,
       CASE WHEN col.default_object_id <> 0 OR col.is_identity = 1 OR col.is_computed = 1 THEN 1 ELSE 0 END AS filled,
       CASE WHEN EXISTS (
           SELECT 1 FROM sys.tables AS tab WHERE tab.object_id = col.object_id AND tab.durability = 0
       ) THEN 1 ELSE 0 END AS lasting
FROM sys.columns AS col
WHERE col.object_id = OBJECT_ID(N'singleton_leases')
ORDER BY col.column_id;
