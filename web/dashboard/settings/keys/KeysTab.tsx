import { ActionIcon, Badge, Button, Group, Menu, Stack, Table, Text, Tooltip } from '@mantine/core';
import { IconDots, IconKey, IconPencil, IconPlus, IconTrash } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useRef, useState } from 'react';
import { Confirm } from '../../../ui/Confirm.tsx';
import { EmptyState } from '../../../ui/EmptyState.tsx';
import { Loaded } from '../../../ui/Loaded.tsx';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import { Sliced } from '../../../ui/Sliced.tsx';
import { useNow } from '../../../ui/time.ts';
import { useEnvironment } from '../../shell/environment.ts';
import { KeyDialog } from './KeyDialog.tsx';
import { KeySecret } from './KeySecret.tsx';
import { type Key, keysQuery, type NewKey, revokeKey } from './queries.ts';

/** The one that stands for a setting of the service, which no page changes. */
const settingName = 'TRELLIS_SECRET_KEY';

export function KeysTab() {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const query = useQuery(keysQuery(environment));
  const [isOpen, setOpen] = useState(false);
  const [edited, setEdited] = useState<Key>();
  const open = (key: Key | undefined) => {
    setEdited(key);
    setOpen(true);
  };
  const [revoked, setRevoked] = useState<Key>();
  const [made, setMade] = useState<NewKey>();
  const create = useRef<HTMLButtonElement>(null);
  const revoke = useMutation({
    mutationFn: ({ id }: Key) => revokeKey(environment, id),
    onSuccess: () => queries.invalidateQueries({ queryKey: [environment, 'keys'] }),
  });
  return (
    <Stack>
      <Group justify="space-between">
        <Text size="sm" c="dimmed" flex="1 1 260px" maw={680}>
          Applications call with these. A key belongs to {environment} alone, and may do what its scopes say.
        </Text>
        <Button ref={create} leftSection={<IconPlus size={16} />} onClick={() => open(undefined)}>
          Create a key
        </Button>
      </Group>
      <Loaded query={query}>
        {(keys) =>
          keys.length === 0 ? (
            <EmptyState icon={<IconKey size={26} />} title="No key">
              Without one no application can call {environment}.
            </EmptyState>
          ) : (
            <Sliced items={keys}>
              {(shown) => <KeysTable keys={shown} onEdit={open} onRevoke={setRevoked} />}
            </Sliced>
          )
        }
      </Loaded>
      <KeyDialog
        environment={environment}
        editedKey={edited}
        opened={isOpen}
        onClose={() => setOpen(false)}
        onMade={setMade}
      />
      {made !== undefined && (
        <KeySecret
          made={made}
          onClose={() => {
            setMade(undefined);
            create.current?.focus();
          }}
        />
      )}
      <Confirm
        title="Revoke this key?"
        act="Revoke it"
        given={revoked}
        mutation={revoke}
        onClose={() => setRevoked(undefined)}
      >
        <Text className="wrap">
          <b>{revoked?.name}</b> (…{revoked?.hint}) and its tickets are refused on all nodes within a second,
          for good. Last used <RelativeTime at={revoked?.last_used_at ?? null} />.
        </Text>
        {revoked?.name === settingName && (
          <Text size="sm" c="dimmed">
            It stands for the setting {settingName}: the next start with the setting makes it good again.
          </Text>
        )}
      </Confirm>
    </Stack>
  );
}

function KeysTable({
  keys,
  onEdit,
  onRevoke,
}: {
  keys: Key[];
  onEdit: (key: Key) => void;
  onRevoke: (key: Key) => void;
}) {
  const nowMs = useNow();
  return (
    <Table.ScrollContainer minWidth={300} className="framed">
      <Table verticalSpacing="sm" horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Key</Table.Th>
            <Table.Th>Scopes</Table.Th>
            <Table.Th visibleFrom="sm">Last used</Table.Th>
            <Table.Th visibleFrom="md">Expires</Table.Th>
            <Table.Th w={50} aria-label="Acts" />
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {keys.map((key) => (
            <Table.Tr key={key.id}>
              <Table.Td miw={120}>
                <Text size="sm" fw={550} className="wrap">
                  {key.name}
                </Text>
                <Text size="xs" c="dimmed" ff="monospace" className="unbroken">
                  …{key.hint}
                </Text>
              </Table.Td>
              <Table.Td>
                <Scopes editedKey={key} />
              </Table.Td>
              <Table.Td visibleFrom="sm">
                <RelativeTime at={key.last_used_at} size="sm" />
              </Table.Td>
              <Table.Td visibleFrom="md">
                {key.expires_at !== null && Date.parse(key.expires_at) <= nowMs ? (
                  <Badge color="red">expired</Badge>
                ) : (
                  <RelativeTime at={key.expires_at} size="sm" />
                )}
              </Table.Td>
              <Table.Td>
                <Menu position="bottom-end" width={150}>
                  <Menu.Target>
                    <ActionIcon variant="subtle" color="gray" aria-label={`Acts on ${key.name}`}>
                      <IconDots size={18} />
                    </ActionIcon>
                  </Menu.Target>
                  <Menu.Dropdown>
                    {key.name !== settingName && (
                      <Menu.Item leftSection={<IconPencil size={16} />} onClick={() => onEdit(key)}>
                        Edit
                      </Menu.Item>
                    )}
                    <Menu.Item
                      color="red"
                      leftSection={<IconTrash size={16} />}
                      onClick={() => onRevoke(key)}
                    >
                      Revoke
                    </Menu.Item>
                  </Menu.Dropdown>
                </Menu>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** A few by name, the rest on hover. */
function Scopes({ editedKey: { scopes, proxy_rules: rules, rate_limit: rate } }: { editedKey: Key }) {
  const shown = scopes.slice(0, 3);
  const hidden = scopes.slice(3);
  return (
    <Group gap={4}>
      {scopes.includes('*') ? (
        <Badge color="orange">all</Badge>
      ) : (
        shown.map((scope) => (
          <Badge key={scope} color="gray">
            {scope}
          </Badge>
        ))
      )}
      {hidden.length > 0 && (
        <Tooltip
          label={hidden.join(', ')}
          multiline
          maw={320}
          events={{ hover: true, focus: true, touch: true }}
        >
          <Badge color="gray" tabIndex={0}>
            +{hidden.length}
          </Badge>
        </Tooltip>
      )}
      {rules.length > 0 && (
        <Badge color="blue">{rules.length === 1 ? 'one proxy rule' : `${rules.length} proxy rules`}</Badge>
      )}
      {rate !== null && <Badge color="blue">{rate.toLocaleString('en')} a minute</Badge>}
    </Group>
  );
}
