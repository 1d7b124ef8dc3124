import { Button, Group, SegmentedControl, Stack, Table, Text } from '@mantine/core';
import { IconListDetails } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FilterField } from '../../ui/FilterField.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { NewestFirst } from '../../ui/NewestFirst.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import type { SettingsSearch } from '../search.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useIsOwner, useMay } from '../sign-in/queries.ts';
import { keysQuery } from './keys/queries.ts';
import { usersQuery } from './people/queries.ts';
import { type AuditEntry, auditQuery } from './queries.ts';

/** Who changed what: of this environment, and for owners of the installation. */
export function AuditTab() {
  const environment = useEnvironment();
  const isOwner = useIsOwner();
  const search = useSearch({ from: '/$environment/settings' });
  const navigate = useNavigate({ from: '/$environment/settings' });
  const isOfInstallation = isOwner && search.of === 'installation';
  const { actor, action, target, cursor } = search;
  const query = useQuery(
    auditQuery(environment, {
      limit: 50,
      ...(actor !== undefined && { actor }),
      ...(action !== undefined && { action }),
      ...(target !== undefined && { target }),
      ...(cursor !== undefined && { cursor }),
      ...(isOfInstallation && { scope: 'installation' as const }),
    }),
  );
  const change = (next: Partial<SettingsSearch>) =>
    void navigate({ search: (former) => ({ ...former, cursor: undefined, ...next }), replace: true });
  const isFiltered = actor !== undefined || action !== undefined || target !== undefined;
  return (
    <Stack>
      <Group justify="space-between">
        <Text size="sm" c="dimmed" flex="1 1 260px" maw={680}>
          Each entry is chained to the one before. <code>trellis audit verify</code> finds what was changed or
          removed.
        </Text>
        {isOwner && (
          <SegmentedControl
            aria-label="Whose entries"
            value={isOfInstallation ? 'installation' : 'environment'}
            onChange={(of) => change({ of: of === 'installation' ? of : undefined })}
            data={[
              { value: 'environment', label: environment },
              { value: 'installation', label: 'People and environments' },
            ]}
          />
        )}
      </Group>
      <Filters key={isOfInstallation ? 'installation' : environment} search={search} onChange={change} />
      <Loaded query={query}>
        {({ entries, next_cursor: next }) => (
          <Stack>
            {entries.length === 0 ? (
              <EmptyState
                icon={<IconListDetails size={26} />}
                title={isFiltered ? 'Nothing fits' : 'Nothing yet'}
              >
                {isFiltered
                  ? 'Filters ask for whole words: the action connection.deleted, the actor key:4.'
                  : 'Whatever is changed from now on is noted here, with who did it.'}
              </EmptyState>
            ) : (
              <EntriesTable entries={entries} onActor={(one) => change({ actor: one })} />
            )}
            <NewestFirst
              onNewest={cursor === undefined ? undefined : () => change({})}
              older={
                next === null
                  ? undefined
                  : (looks) => (
                      <Link
                        to="/$environment/settings"
                        params={{ environment }}
                        search={{ ...search, cursor: Number(next) }}
                        {...looks}
                      />
                    )
              }
            />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

function Filters({
  search,
  onChange,
}: {
  search: SettingsSearch;
  onChange: (next: Partial<SettingsSearch>) => void;
}) {
  const fields = [
    ['action', 'Action, such as key.created'],
    ['actor', 'Actor, such as key:4'],
    ['target', 'Target'],
  ] as const;
  return (
    <Group gap="xs">
      {fields.map(([name, placeholder]) => (
        <FilterField
          key={name}
          flex="1 1 180px"
          aria-label={name.charAt(0).toUpperCase() + name.slice(1)}
          placeholder={placeholder}
          value={search[name]}
          onSettle={(typed) => onChange({ [name]: typed })}
        />
      ))}
    </Group>
  );
}

function EntriesTable({ entries, onActor }: { entries: AuditEntry[]; onActor: (actor: string) => void }) {
  const nameOf = useActorNames();
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing={10} horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>What</Table.Th>
            <Table.Th>Who</Table.Th>
            <Table.Th visibleFrom="md">Details</Table.Th>
            <Table.Th visibleFrom="xs">When</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {entries.map((entry) => (
            <Table.Tr key={entry.position}>
              <Table.Td>
                <Text size="sm" fw={550} className="wrap">
                  {entry.action}
                </Text>
                <Text size="xs" c="dimmed" className="wrap">
                  {nameOf(`user:${entry.target}`) ?? entry.target}
                </Text>
                <Text size="xs" c="dimmed" hiddenFrom="xs">
                  <RelativeTime at={entry.created_at} />
                </Text>
              </Table.Td>
              <Table.Td maw={200}>
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
              </Table.Td>
              <Table.Td visibleFrom="md" maw={320}>
                <Text size="xs" c="dimmed" ff="monospace" className="wrap">
                  {Object.entries(entry.details)
                    .filter(([, value]) => String(value) !== '')
                    .map(([name, value]) => `${name}: ${String(value)}`)
                    .join(', ')}
                </Text>
              </Table.Td>
              <Table.Td visibleFrom="xs">
                <RelativeTime at={entry.created_at} size="sm" />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** What actors are called, as far as the user may know it: keys by name, and for owners people. */
function useActorNames(): (actor: string) => string | undefined {
  const environment = useEnvironment();
  const may = useMay();
  const isOwner = useIsOwner();
  const { data: keys = [] } = useQuery({ ...keysQuery(environment), enabled: may('keys') });
  const { data: users = [] } = useQuery({ ...usersQuery(), enabled: isOwner });
  const names = new Map<string, string>([
    ...keys.map(({ id, name }) => [`key:${id}`, `key ${name}`] as const),
    ...users.map(({ id, name }) => [`user:${id}`, name] as const),
  ]);
  return (actor) => names.get(actor);
}
