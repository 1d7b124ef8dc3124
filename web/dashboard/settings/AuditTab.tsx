import { Button, Group, SegmentedControl, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconListDetails } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { ExportMenu } from '../ExportMenu.tsx';
import { CursorPager, defined, FilterBar, hasNoEntries } from '../lists.tsx';
import type { SettingsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useIsOwner } from '../sign-in/queries.ts';
import { type Actors, useActors } from './actors.ts';
import { type AuditEntry, auditQuery, exportAudit } from './queries.ts';

/** The audit log of this environment and, for owners, of the installation. */
export function AuditTab() {
  const environment = useEnvironment();
  const isOwner = useIsOwner();
  const search = useSearch({ from: '/$environment/settings' });
  const navigate = useNavigate({ from: '/$environment/settings' });
  const isOfInstallation = isOwner && search.of === 'installation';
  const { actor: typed, action, target, cursor } = search;
  const actors = useActors();
  const actor = typed && (actors.idOf(typed) ?? typed);
  const chosen = {
    ...defined({ actor, action, target }),
    ...(isOfInstallation && { scope: 'installation' as const }),
  };
  const query = useQuery(auditQuery(environment, { limit: 50, ...chosen, ...defined({ cursor }) }));
  const change = (next: Partial<SettingsSearch>) =>
    void navigate({ search: (former) => ({ ...former, cursor: undefined, ...next }), replace: true });
  const isFiltered = actor !== undefined || action !== undefined || target !== undefined;
  return (
    <Stack>
      <Group justify="space-between">
        <Dimmed flex="1 1 260px" maw={680}>
          Each entry is chained to the previous one. <code>trellis audit verify</code> detects changed or
          removed entries.
        </Dimmed>
        <Group gap="xs">
          {isOwner && (
            <SegmentedControl
              aria-label="Scope of the entries"
              value={isOfInstallation ? 'installation' : 'environment'}
              onChange={(of) => change({ of: of === 'installation' ? of : undefined })}
              data={[
                { value: 'environment', label: environment },
                { value: 'installation', label: 'People and environments' },
              ]}
            />
          )}
          <ExportMenu name="audit" start={(format) => exportAudit(environment, chosen, format)} />
        </Group>
      </Group>
      <FilterBar
        key={environment}
        search={search}
        filters={[
          { name: 'action', label: 'Action', placeholder: 'Action, such as key.created' },
          { name: 'actor', label: 'Actor', placeholder: 'Actor, by name or ID' },
          { name: 'target', label: 'Target' },
        ]}
        isEmpty={cursor === undefined && hasNoEntries(query, (page) => page.entries)}
        onChange={change}
      />
      <Loaded query={query}>
        {({ entries, next_cursor: next }) => (
          <Stack>
            {entries.length === 0 ? (
              <EmptyState
                icon={<IconListDetails size={26} />}
                title={isFiltered ? 'No match' : 'No entries yet'}
              >
                {isFiltered
                  ? 'Filters match whole values, such as the action connection.deleted and the name of an actor.'
                  : 'Every change appears here, with its actor.'}
              </EmptyState>
            ) : (
              <EntriesTable
                entries={entries}
                nameOf={actors.nameOf}
                onActor={(one) => change({ actor: one })}
              />
            )}
            <CursorPager
              onFirst={cursor === undefined ? undefined : () => change({})}
              next={next === null ? undefined : { cursor: Number(next) }}
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

function EntriesTable({
  entries,
  nameOf,
  onActor,
}: {
  entries: AuditEntry[];
  nameOf: Actors['nameOf'];
  onActor: (actor: string) => void;
}) {
  return (
    <ListTable
      rows={entries}
      keyOf={(entry) => entry.position}
      columns={[
        {
          title: 'What',
          cell: (entry) => (
            <>
              <Text size="sm" fw={550} className="wrap">
                {entry.action}
              </Text>
              <Text size="xs" c="dimmed" className="wrap">
                {nameOf(`user:${entry.target}`) ?? entry.target}
              </Text>
              <Text size="xs" c="dimmed" hiddenFrom="xs">
                <RelativeTime at={entry.created_at} />
              </Text>
            </>
          ),
        },
        {
          title: 'Who',
          maw: 200,
          cell: (entry) => (
            <Button
              variant="subtle"
              size="compact-sm"
              maw="100%"
              px={4}
              title={`Only by ${entry.actor}`}
              onClick={() => onActor(entry.actor)}
            >
              {nameOf(entry.actor) ?? entry.actor}
            </Button>
          ),
        },
        {
          title: 'Details',
          visibleFrom: 'md',
          maw: 320,
          cell: (entry) => (
            <Text size="xs" c="dimmed" ff="monospace" className="wrap">
              {Object.entries(entry.details)
                .filter(([, value]) => String(value) !== '')
                .map(([name, value]) => `${name}: ${String(value)}`)
                .join(', ')}
            </Text>
          ),
        },
        {
          title: 'When',
          visibleFrom: 'xs',
          cell: (entry) => <RelativeTime at={entry.created_at} size="sm" />,
        },
      ]}
    />
  );
}
