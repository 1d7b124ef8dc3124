-- Connections that were imported before 0065, and neither refreshed nor used since, are unverified.
-- runs with: 0033

-- safe: it locks only the rows that it changes, and takes some seconds for 100,000 connections.
update connection
set is_unverified = true
from integration
where
  integration.id = connection.integration_id
  and connection.deleted_at is null
  and connection.last_used_at is null
  and not connection.is_unverified
  and exists (
    select from audit
    where
      audit.environment_id = connection.environment_id
      and audit.action in ('connection.imported', 'connection.overridden')
      and audit.target = integration.key || '/' || connection.connection_id
      -- A later consent or refresh proves the credentials.
      and audit.created_at > connection.refreshed_at - interval '1 minute'
  );
