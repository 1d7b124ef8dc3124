import { Alert, Button, Code, Group, List, Select, Stack, Text, Textarea, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Fault } from '../../api/client.ts';
import { Confirm } from '../../ui/Confirm.tsx';
import { FormDialog } from '../../ui/Dialog.tsx';
import { GuideLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { authLabels } from './auth-labels.ts';
import { definitionExamples } from './definition-examples.ts';
import { createProvider, deleteProvider, providerQuery, replaceProvider } from './queries.ts';

/** Adds a definition of the environment. `onClose` gets the name of the new provider. */
export function NewDefinitionDialog({ onClose }: { onClose: (name?: string) => void }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [example, setExample] = useState('OAUTH2');
  const form = useForm({
    initialValues: { name: 'own-', definition: definitionExamples.OAUTH2 ?? '' },
    validate: {
      name: (name) =>
        /^own-[a-z0-9][a-z0-9-]*$/.test(name) ? null : 'own- and lower-case letters, digits and hyphens',
    },
  });
  const create = useMutation({
    mutationFn: (values: { name: string; definition: string }) => createProvider(environment, values),
    onSuccess: async (_, { name }) => {
      await queries.invalidateQueries({ queryKey: [environment, 'providers'] });
      onClose(name);
    },
  });
  return (
    <FormDialog
      title="Define a provider"
      size="xl"
      act="Add"
      attempt={{ ...create, isError: create.isError && linesOf(create.error).length === 0 }}
      isDirty={form.isDirty('name') || form.values.definition !== definitionExamples[example]}
      onClose={() => onClose()}
      onSubmit={form.onSubmit((values) => create.mutate(values))}
    >
      <About />
      <Group grow align="flex-start">
        <TextInput label="Name" required {...form.getInputProps('name')} />
        <Select
          label="Example"
          description="Replaces the text below"
          inputWrapperOrder={['label', 'input', 'description']}
          allowDeselect={false}
          data={Object.keys(definitionExamples).map((value) => ({
            value,
            label: authLabels[value] ?? value,
          }))}
          value={example}
          onChange={(mode) => {
            setExample(mode ?? example);
            form.setFieldValue('definition', definitionExamples[mode ?? example] ?? '');
          }}
        />
      </Group>
      <DefinitionField {...form.getInputProps('definition')} error={create.error} />
    </FormDialog>
  );
}

/** Replaces or deletes a definition of the environment. */
export function DefinitionDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const query = useQuery(providerQuery(useEnvironment(), name));
  if (query.data?.definition === undefined) return null;
  return <EditDialog name={name} text={query.data.definition} onClose={onClose} />;
}

function EditDialog({ name, text, onClose }: { name: string; text: string; onClose: () => void }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [deleting, setDeleting] = useState<string>();
  const form = useForm({ initialValues: { definition: text } });
  const done = async () => {
    await queries.invalidateQueries({ queryKey: [environment, 'providers'] });
    onClose();
  };
  const replace = useMutation({
    mutationFn: ({ definition }: { definition: string }) =>
      replaceProvider(environment, { name, definition }),
    onSuccess: done,
  });
  const remove = useMutation({
    mutationFn: (given: string) => deleteProvider(environment, given),
    onSuccess: async () => {
      // The list alone: the dialog still reads the provider, which is gone.
      await queries.invalidateQueries({ queryKey: [environment, 'providers'], exact: true });
      onClose();
    },
  });
  return (
    <>
      <FormDialog
        title={`Definition of ${name}`}
        size="xl"
        act="Save"
        attempt={{ ...replace, isError: replace.isError && linesOf(replace.error).length === 0 }}
        isDirty={form.isDirty()}
        onClose={onClose}
        onSubmit={form.onSubmit((values) => replace.mutate(values))}
      >
        <About />
        <DefinitionField {...form.getInputProps('definition')} error={replace.error} />
        <Group>
          <Button variant="subtle" color="red" onClick={() => setDeleting(name)}>
            Delete this provider
          </Button>
        </Group>
      </FormDialog>
      <Confirm
        title="Delete the provider"
        act="Delete"
        given={deleting}
        mutation={remove}
        onClose={() => setDeleting(undefined)}
      >
        <Text>
          Only a provider without integrations can be deleted. <Code>{name}</Code> is removed from this
          environment.
        </Text>
      </Confirm>
    </>
  );
}

function About() {
  return (
    <Text size="sm" c="dimmed">
      YAML or JSON. Only this environment has the provider. <GuideLink to="catalogue" />
    </Text>
  );
}

/** The text of a definition, and the faults of the last attempt by line. */
function DefinitionField({ error, ...input }: { error: unknown } & Record<string, unknown>) {
  const lines = linesOf(error);
  return (
    <Stack gap="xs">
      <Textarea
        label="Definition"
        autosize
        minRows={10}
        maxRows={24}
        maxLength={65_536}
        spellCheck={false}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }}
        {...input}
        error={lines.length > 0}
      />
      {lines.length > 0 && (
        <Alert color="red" title="The definition is not valid">
          <List size="sm">
            {lines.map((message) => (
              <List.Item key={message}>{message}</List.Item>
            ))}
          </List>
        </Alert>
      )}
    </Stack>
  );
}

/** The faults of a definition, each with its line. */
function linesOf(error: unknown): string[] {
  if (!(error instanceof Fault)) return [];
  return error.fields.filter(({ path }) => path === 'definition').map(({ message }) => message);
}
