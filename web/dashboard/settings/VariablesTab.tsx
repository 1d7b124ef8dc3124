import { ActionIcon, Badge, Button, Group, Stack, Text, Textarea, TextInput, Tooltip } from '@mantine/core';
import { useForm } from '@mantine/form';
import { type UseMutationResult, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconPencil, IconPlus, IconTrash, IconVariable } from '../../ui/icons.tsx';
import { ListTable } from '../../ui/ListTable.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { changeVariables, type NewVariable, type Variable, variablesQuery } from './queries.ts';

/** The variables of the environment. Their values can be set here, and read only with keys. */
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
        <Dimmed flex="1 1 260px" maw={680}>
          Encrypted values for your application in {environment}. The dashboard sets values and cannot read
          them; a key with <code>environment:read</code> reads them at <code>GET /environment-variables</code>
          .
        </Dimmed>
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
              For example the address of an API, or a secret that your functions need.
            </EmptyState>
          ) : (
            <ListTable
              rows={variables}
              keyOf={(variable) => variable.name}
              columns={[
                {
                  title: 'Name',
                  cell: (variable) => (
                    <Text size="sm" ff="monospace" className="wrap">
                      {variable.name}
                    </Text>
                  ),
                },
                { title: 'Value', cell: () => <Badge color="gray">set</Badge> },
                mayWrite && {
                  label: 'Actions',
                  heading: { w: 96 },
                  cell: (variable) => (
                    <Group gap={4} wrap="nowrap" justify="flex-end">
                      <Tooltip label="Change the value">
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
                  ),
                },
              ]}
            />
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
          <b>{removed?.name}</b> and its value are permanently deleted.
        </Text>
      </Confirm>
    </Stack>
  );
}

/** A new variable, or a new value. */
function VariableDialog({
  name,
  known,
  mutation,
  onClose,
}: {
  /** The variable to set; undefined adds one. */
  name: string | undefined;
  known: Variable[];
  mutation: UseMutationResult<unknown, Error, NewVariable>;
  onClose: () => void;
}) {
  const close = () => {
    mutation.reset();
    onClose();
  };
  const form = useForm({
    initialValues: { name: name ?? '', value: '' },
    validate: {
      name: (given) => {
        if (!/^[A-Za-z_][A-Za-z0-9_]{0,254}$/.test(given))
          return 'Letters, digits and _. The first character is not a digit.';
        return name === undefined && known.some((one) => one.name === given)
          ? 'This variable already exists'
          : null;
      },
    },
  });
  return (
    <FormDialog
      title={name === undefined ? 'Add a variable' : `Set ${name}`}
      act="Save"
      attempt={mutation}
      isDirty={form.isDirty()}
      onClose={close}
      onSubmit={form.onSubmit((given) => mutation.mutate(given, { onSuccess: close }))}
    >
      {name === undefined && (
        <TextInput
          label="Name"
          placeholder="API_BASE"
          required
          data-autofocus
          {...form.getInputProps('name')}
        />
      )}
      <Textarea
        label="Value"
        description="The value is not shown again"
        autosize
        minRows={2}
        maxRows={10}
        maxLength={65_536}
        spellCheck={false}
        {...(name !== undefined && { 'data-autofocus': true })}
        {...form.getInputProps('value')}
      />
    </FormDialog>
  );
}
