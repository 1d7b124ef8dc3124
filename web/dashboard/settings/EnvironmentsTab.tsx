import { ActionIcon, Alert, Badge, Button, Group, List, Menu, Stack, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { Dialog, DialogEnd, FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconDots, IconPencil, IconPlus, IconTrash } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { counted } from '../../ui/size.ts';
import { AnchorLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import {
  contentsQuery,
  createEnvironment,
  deleteEnvironment,
  environmentsQuery,
  renameEnvironment,
} from './queries.ts';

/** The environments that each start creates if they are missing. */
const lasting = ['dev', 'prod'];

export function EnvironmentsTab() {
  const current = useEnvironment();
  const query = useQuery(environmentsQuery());
  const [opened, setOpened] = useState<{ act: 'create' } | { act: 'rename' | 'delete'; name: string }>();
  const close = () => setOpened(undefined);
  return (
    <Stack>
      <Group justify="space-between">
        <Dimmed flex="1 1 260px" maw={680}>
          Each environment has its own keys, integrations, connections and settings, isolated from the others.
        </Dimmed>
        <Button leftSection={<IconPlus size={16} />} onClick={() => setOpened({ act: 'create' })}>
          Create an environment
        </Button>
      </Group>
      <Loaded query={query}>
        {(environments) => (
          <ListTable
            rows={environments}
            keyOf={({ name }) => name}
            columns={[
              {
                title: 'Name',
                cell: ({ name }) => (
                  <Group gap={6}>
                    <AnchorLink
                      size="sm"
                      fw={550}
                      className="wrap"
                      to="/$environment/home"
                      params={{ environment: name }}
                    >
                      {name}
                    </AnchorLink>
                    {name === current && <Badge color="gray">current</Badge>}
                  </Group>
                ),
              },
              {
                title: 'Created',
                cell: ({ created_at: createdAt }) => <RelativeTime at={createdAt} size="sm" />,
              },
              {
                label: 'Actions',
                heading: { w: 50 },
                cell: ({ name }) =>
                  lasting.includes(name) ? (
                    <Text size="xs" c="dimmed">
                      permanent
                    </Text>
                  ) : (
                    <Menu position="bottom-end" width={150}>
                      <Menu.Target>
                        <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${name}`}>
                          <IconDots size={18} />
                        </ActionIcon>
                      </Menu.Target>
                      <Menu.Dropdown>
                        <Menu.Item
                          leftSection={<IconPencil size={16} />}
                          onClick={() => setOpened({ act: 'rename', name })}
                        >
                          Rename
                        </Menu.Item>
                        <Menu.Item
                          color="red"
                          leftSection={<IconTrash size={16} />}
                          onClick={() => setOpened({ act: 'delete', name })}
                        >
                          Delete
                        </Menu.Item>
                      </Menu.Dropdown>
                    </Menu>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
      {(opened?.act === 'create' || opened?.act === 'rename') && (
        <EnvironmentDialog former={opened.act === 'rename' ? opened.name : undefined} onClose={close} />
      )}
      {opened?.act === 'delete' && <DeleteEnvironment name={opened.name} onClose={close} />}
    </Stack>
  );
}

/** Creates or renames an environment. */
function EnvironmentDialog({
  former,
  onClose,
}: {
  /** The environment to rename; undefined creates one. */
  former: string | undefined;
  onClose: () => void;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const form = useForm({
    initialValues: { name: former ?? '' },
    validate: {
      name: (name) =>
        /^[a-z0-9][a-z0-9_-]{0,63}$/.test(name)
          ? null
          : 'Up to 64 lowercase letters, digits, _ and -. The first character is a letter or digit.',
    },
  });
  const save = useMutation({
    mutationFn: ({ name }: { name: string }) =>
      former === undefined ? createEnvironment(name) : renameEnvironment({ from: former, to: name }),
    onSuccess: async (_, { name }) => {
      await queries.refetchQueries({ queryKey: ['me'] });
      await queries.invalidateQueries({ queryKey: ['environments'] });
      onClose();
      if (former !== undefined && isOpen(former)) {
        await navigate({
          to: '/$environment/settings',
          params: { environment: name },
          search: { tab: 'environments' },
          ignoreBlocker: true,
        });
      }
    },
  });
  return (
    <FormDialog
      title={former === undefined ? 'Create an environment' : `Rename ${former}`}
      act={former === undefined ? 'Create environment' : 'Rename environment'}
      attempt={save}
      isDirty={form.isDirty()}
      onClose={onClose}
      onSubmit={form.onSubmit((values) => save.mutate(values))}
    >
      <TextInput label="Name" placeholder="staging" required data-autofocus {...form.getInputProps('name')} />
      {former !== undefined && (
        <Dimmed>Its keys remain valid. The addresses of its dashboard pages change.</Dimmed>
      )}
    </FormDialog>
  );
}

/** Whether a page of the environment is open now. */
const isOpen = (environment: string) => location.pathname.startsWith(`/app/${environment}/`);

/** Deletes an environment, with a list of its contents, or shows what must be deleted first. */
function DeleteEnvironment({ name, onClose }: { name: string; onClose: () => void }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const query = useQuery(contentsQuery(name));
  const remove = useMutation({
    mutationFn: () => deleteEnvironment(name),
    onSuccess: async () => {
      await queries.refetchQueries({ queryKey: ['me'] });
      await queries.invalidateQueries({ queryKey: ['environments'] });
      onClose();
      if (isOpen(name)) await navigate({ to: '/' });
    },
  });
  const isInUse = (query.data?.connections ?? 0) > 0;
  return (
    <Dialog opened onClose={onClose} title={`Delete ${name}?`}>
      <Stack>
        <Loaded query={query} loading={<LoadingRows rows={1} height={96} />}>
          {({ connections, integrations, keys }) =>
            isInUse ? (
              <Alert color="orange" title={`${counted(connections, 'connection')} must be deleted first`}>
                <Text size="sm">
                  Delete{' '}
                  <AnchorLink
                    inherit
                    underline="always"
                    to="/$environment/connections"
                    params={{ environment: name }}
                    search={{}}
                  >
                    its connections
                  </AnchorLink>{' '}
                  first, so that their grants are revoked.
                </Text>
              </Alert>
            ) : (
              <>
                <Text>This permanently deletes:</Text>
                <List>
                  <List.Item>{counted(keys, 'key')}, which stop working immediately</List.Item>
                  <List.Item>{counted(integrations, 'integration')} with client secrets</List.Item>
                  <List.Item>settings, variables, endpoints, events and logs</List.Item>
                </List>
              </>
            )
          }
        </Loaded>
        <DialogEnd
          act="Delete permanently"
          attempt={remove}
          button={{ color: 'red', disabled: query.data === undefined || isInUse }}
          onClose={onClose}
          onAct={() => remove.mutate()}
        />
      </Stack>
    </Dialog>
  );
}
