import { ActionIcon, Badge, Button, Card, Group, Stack, Text, TextInput, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { randomId } from '@mantine/hooks';
import { IconPlus, IconTrash } from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { type At, setTags } from './queries.ts';

const max = 10;

/** What connections are found by; plain text, unlike metadata. */
export function TagsCard({
  environment,
  at,
  tags,
  mayWrite,
}: {
  environment: string;
  at: At;
  tags: Record<string, string>;
  mayWrite: boolean;
}) {
  const [isEditing, setEditing] = useState(false);
  const entries = Object.entries(tags);
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Tags</Title>
        {mayWrite && !isEditing && (
          <Button size="compact-sm" variant="subtle" onClick={() => setEditing(true)} aria-label="Edit tags">
            Edit
          </Button>
        )}
      </Group>
      {isEditing ? (
        <Editor environment={environment} at={at} tags={tags} onDone={() => setEditing(false)} />
      ) : entries.length === 0 ? (
        <Text c="dimmed" size="sm">
          None. Your application finds connections by them.
        </Text>
      ) : (
        <Group gap={6}>
          {entries.map(([name, value]) => (
            <Badge key={name} color="gray" maw="100%" title={`${name}: ${value}`}>
              {name}: {value}
            </Badge>
          ))}
        </Group>
      )}
    </Card>
  );
}

function Editor({
  environment,
  at,
  tags,
  onDone,
}: {
  environment: string;
  at: At;
  tags: Record<string, string>;
  onDone: () => void;
}) {
  const queries = useQueryClient();
  const row = (name: string, value: string) => ({ key: randomId(), name, value });
  const form = useForm({
    initialValues: {
      rows: Object.keys(tags).length > 0 ? Object.entries(tags).map(([n, v]) => row(n, v)) : [row('', '')],
    },
  });
  const save = useMutation({
    mutationFn: ({ rows }: typeof form.values) =>
      setTags(environment, {
        ...at,
        tags: Object.fromEntries(
          rows.filter(({ name }) => name.trim() !== '').map(({ name, value }) => [name.trim(), value.trim()]),
        ),
      }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'connection'] });
      onDone();
    },
  });
  return (
    <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
      <Stack gap="xs">
        {form.values.rows.map(({ key }, index) => (
          <Group key={key} gap="xs" wrap="nowrap">
            <TextInput
              flex={1}
              aria-label={`Name of tag ${index + 1}`}
              placeholder="plan"
              {...form.getInputProps(`rows.${index}.name`)}
            />
            <TextInput
              flex={1}
              aria-label={`Value of tag ${index + 1}`}
              placeholder="team"
              {...form.getInputProps(`rows.${index}.value`)}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={`Remove tag ${index + 1}`}
              onClick={() => form.removeListItem('rows', index)}
            >
              <IconTrash size={16} />
            </ActionIcon>
          </Group>
        ))}
        {save.isError && <FaultNotice error={save.error} />}
        <Group justify="space-between" gap="xs">
          <Button
            variant="subtle"
            size="sm"
            leftSection={<IconPlus size={14} />}
            disabled={form.values.rows.length >= max}
            onClick={() => form.insertListItem('rows', row('', ''))}
          >
            Another tag
          </Button>
          <Group gap="xs">
            <Button variant="default" size="sm" onClick={onDone}>
              Cancel
            </Button>
            <Button type="submit" size="sm" loading={save.isPending}>
              Save
            </Button>
          </Group>
        </Group>
      </Stack>
    </form>
  );
}
