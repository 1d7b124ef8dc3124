import { ActionIcon, Alert, Badge, Button, Code, Group, Menu, Stack, Text, Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useRef, useState } from 'react';
import { Confirm } from '../../../ui/Confirm.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { Dimmed } from '../../../ui/Dimmed.tsx';
import { EmptyState } from '../../../ui/EmptyState.tsx';
import { IconAlertTriangle, IconDots, IconKey, IconPencil, IconPlus, IconTrash } from '../../../ui/icons.tsx';
import { ListTable } from '../../../ui/ListTable.tsx';
import { Loaded } from '../../../ui/Loaded.tsx';
import { RelativeTime } from '../../../ui/RelativeTime.tsx';
import { Sliced } from '../../../ui/Sliced.tsx';
import { useNow } from '../../../ui/time.ts';
import { GuideLink } from '../../links.tsx';
import { useEnvironment } from '../../shell/environment.ts';
import { useChange } from '../../use-change.ts';
import { KeyDialog } from './KeyDialog.tsx';
import { type Key, keysQuery, type NewKey, revokeKey } from './queries.ts';

/** The key of a setting of the service, which the dashboard cannot change. */
const settingName = 'TRELLIS_SECRET_KEY';

export function KeysTab() {
  const environment = useEnvironment();
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
  const revoke = useChange(({ id }: Key) => revokeKey(environment, id), { stale: [[environment, 'keys']] });
  return (
    <Stack>
      <Group justify="space-between">
        <Dimmed flex="1 1 260px" maw={680}>
          Applications authenticate with keys. A key is valid in {environment} only, for the calls that its
          scopes allow.
        </Dimmed>
        <Button ref={create} leftSection={<IconPlus size={16} />} onClick={() => open(undefined)}>
          Create a key
        </Button>
      </Group>
      <Loaded query={query}>
        {(keys) =>
          keys.length === 0 ? (
            <EmptyState icon={<IconKey size={26} />} title="No key">
              Without a key, no application can call {environment}. <GuideLink to="keys" />
            </EmptyState>
          ) : (
            <Sliced items={keys}>
              {(shown) => <KeysTable keys={shown} onEdit={open} onRevoke={setRevoked} />}
            </Sliced>
          )
        }
      </Loaded>
      {isOpen && <KeyDialog editedKey={edited} onClose={() => setOpen(false)} onMade={setMade} />}
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
        act="Revoke key"
        given={revoked}
        mutation={revoke}
        onClose={() => setRevoked(undefined)}
      >
        <Text className="wrap">
          <b>{revoked?.name}</b> (…{revoked?.hint}) and its tickets are permanently rejected by all nodes
          within a second. Last used <RelativeTime at={revoked?.last_used_at ?? null} />.
        </Text>
        {revoked?.name === settingName && (
          <Dimmed>
            It is the key of the setting {settingName}. It is valid again when the service starts with this
            setting.
          </Dimmed>
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
    <ListTable
      rows={keys}
      keyOf={(key) => key.id}
      columns={[
        {
          title: 'Key',
          miw: 120,
          cell: (key) => (
            <>
              <Text size="sm" fw={550} className="wrap">
                {key.name}
              </Text>
              <Text size="xs" c="dimmed" ff="monospace" className="unbroken">
                …{key.hint}
              </Text>
            </>
          ),
        },
        { title: 'Scopes', cell: (key) => <Scopes editedKey={key} /> },
        {
          title: 'Last used',
          visibleFrom: 'sm',
          cell: (key) => <RelativeTime at={key.last_used_at} size="sm" />,
        },
        {
          title: 'Expires',
          visibleFrom: 'md',
          cell: (key) =>
            key.expires_at !== null && Date.parse(key.expires_at) <= nowMs ? (
              <Badge color="red">expired</Badge>
            ) : (
              <RelativeTime at={key.expires_at} size="sm" />
            ),
        },
        {
          label: 'Actions',
          heading: { w: 50 },
          cell: (key) => (
            <Menu position="bottom-end" width={150}>
              <Menu.Target>
                <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${key.name}`}>
                  <IconDots size={18} />
                </ActionIcon>
              </Menu.Target>
              <Menu.Dropdown>
                {key.name !== settingName && (
                  <Menu.Item leftSection={<IconPencil size={16} />} onClick={() => onEdit(key)}>
                    Edit
                  </Menu.Item>
                )}
                <Menu.Item color="red" leftSection={<IconTrash size={16} />} onClick={() => onRevoke(key)}>
                  Revoke
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          ),
        },
      ]}
    />
  );
}

/** The first scopes by name, the others on hover. */
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

/** The secret of a new key, which is shown only once. A click outside does not close it. */
function KeySecret({ made, onClose }: { made: NewKey; onClose: () => void }) {
  return (
    <Dialog
      opened
      onClose={onClose}
      closeOnClickOutside={false}
      closeOnEscape={false}
      withCloseButton={false}
      title={`The key ${made.name}`}
    >
      <Stack>
        <Alert
          color="yellow"
          icon={<IconAlertTriangle size={18} />}
          title="Copy the key now. It is shown only once."
        >
          <Text size="sm">The service stores only a hash of it. If you lose the key, create a new one.</Text>
        </Alert>
        <Code block tabIndex={0} className="broken" data-testid="secret">
          {made.secret}
        </Code>
        <Group justify="flex-end">
          <CopyButton value={made.secret} what="the key" label="Copy" />
          <Button onClick={onClose}>I've saved the key</Button>
        </Group>
      </Stack>
    </Dialog>
  );
}
