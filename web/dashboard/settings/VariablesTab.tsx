import { ActionIcon, Badge, Button, Group, Stack, Table, Text, Tooltip } from '@mantine/core';
import { IconPencil, IconPlus, IconTrash, IconVariable } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { changeVariables, type NewVariable, type Variable, variablesQuery } from './queries.ts';
import { VariableDialog } from './VariableDialog.tsx';

/** Variables of the environment. Values are set here, and read by keys alone. */
export function VariablesTab() {
  const environment = useEnvironment();
  const mayWrite = useMay()('environment:write');
  const queries = useQueryClient();
  const query = useQuery(variablesQuery(environment));
  const [edited, setEdited] = useState<{ name: string | undefined }>();
  const [removed, setRemoved] = useState<Variable>();
  const known = query.data ?? [];
  const show = (stored: Variable[]) => queries.setQueryData(variablesQuery(environment).queryKey, stored);
  const set = useMutation({
    mutationFn: (one: NewVariable) => changeVariables(environment, { set: [one] }),
    onSuccess: show,
  });
  const remove = useMutation({
    mutationFn: ({ name }: Variable) => changeVariables(environment, { remove: [name] }),
    onSuccess: show,
  });
  const add = (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEdited({ name: undefined })}>
      Add a variable
    </Button>
  );
  return (
    <Stack>
      <Group justify="space-between">
        <Text size="sm" c="dimmed" flex="1 1 260px" maw={680}>
          What your application keeps for {environment}, sealed. A page sets values and never reads them; a
          key with <code>environment:read</code> does, at <code>GET /environment-variables</code>.
        </Text>
        {mayWrite && known.length > 0 && add}
      </Group>
      <Loaded query={query}>
        {(variables) =>
          variables.length === 0 ? (
            <EmptyState
              icon={<IconVariable size={26} />}
              title="No variable yet"
              action={mayWrite ? add : undefined}
            >
              Such as the address of an interface of yours, or a secret that your functions need.
            </EmptyState>
          ) : (
            <Table.ScrollContainer minWidth={300} className="framed">
              <Table verticalSpacing="sm" horizontalSpacing="md">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Name</Table.Th>
                    <Table.Th>Value</Table.Th>
                    {mayWrite && <Table.Th w={96} aria-label="Acts" />}
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {variables.map((variable) => (
                    <Table.Tr key={variable.name}>
                      <Table.Td>
                        <Text size="sm" ff="monospace" className="wrap">
                          {variable.name}
                        </Text>
                      </Table.Td>
                      <Table.Td>
                        <Badge color="gray">set</Badge>
                      </Table.Td>
                      {mayWrite && (
                        <Table.Td>
                          <Group gap={4} wrap="nowrap" justify="flex-end">
                            <Tooltip label="Another value">
                              <ActionIcon
                                variant="subtle"
                                color="gray"
                                aria-label={`Set ${variable.name}`}
                                onClick={() => setEdited({ name: variable.name })}
                              >
                                <IconPencil size={16} />
                              </ActionIcon>
                            </Tooltip>
                            <Tooltip label="Remove">
                              <ActionIcon
                                variant="subtle"
                                color="red"
                                aria-label={`Remove ${variable.name}`}
                                onClick={() => setRemoved(variable)}
                              >
                                <IconTrash size={16} />
                              </ActionIcon>
                            </Tooltip>
                          </Group>
                        </Table.Td>
                      )}
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Table.ScrollContainer>
          )
        }
      </Loaded>
      {edited !== undefined && (
        <VariableDialog
          name={edited.name}
          known={known}
          mutation={set}
          onClose={() => setEdited(undefined)}
        />
      )}
      <Confirm
        title="Remove this variable?"
        act="Remove"
        given={removed}
        mutation={remove}
        onClose={() => setRemoved(undefined)}
      >
        <Text className="wrap">
          <b>{removed?.name}</b> and its value are gone for good.
        </Text>
      </Confirm>
    </Stack>
  );
}
