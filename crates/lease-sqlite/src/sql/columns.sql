-- The columns of the table ?1, as it is. No row when there is none.
SELECT found.name, found.type, found."notnull", found.pk, found.dflt_value IS NOT NULL OR found.hidden <> 0, shape.strict
FROM pragma_table_list(?1) AS shape, pragma_table_xinfo(?1, 'main') AS found
WHERE shape.schema = 'main'
ORDER BY found.cid;
