-- The audit log cannot be changed by mistake, and a change on purpose is found: `chain` of each entry is a hash of its
-- content, its position and the chain of the one before (docs/activity.md).
alter table sequencer add column chain bytea;
comment on column sequencer.chain is 'Of the audit log: the chain of the entry at last_position.';

create function refuse_audit_change() returns trigger language plpgsql as $$
begin
  -- The sequencer's step: an entry gets its place once, and nothing else of it changes.
  if tg_op = 'UPDATE' and old.position is null and old.chain is null and new.position is not null
    and new.chain is not null
    and (new.id, new.environment_id, new.actor, new.action, new.target, new.details, new.created_at)
      is not distinct from
      (old.id, old.environment_id, old.actor, old.action, old.target, old.details, old.created_at)
  then
    return new;
  end if;
  raise exception 'the audit log is append-only: % is refused', lower(tg_op) using errcode = 'insufficient_privilege';
end
$$;
create trigger audit_append_only before update or delete on audit for each row execute function refuse_audit_change();
create trigger audit_never_emptied before truncate on audit for each statement execute function refuse_audit_change();

create index audit_of_environment on audit (environment_id, position) where position is not null;
create index audit_of_target on audit (environment_id, target, position) where position is not null;
create index audit_of_actor on audit (environment_id, actor, position) where position is not null;
create index audit_of_action on audit (environment_id, action, position) where position is not null;
