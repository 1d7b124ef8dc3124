import { Button, Card, Code, Group, JsonInput, Stack, Text, Title } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { type At, setMetadata } from './queries.ts';

/** What the application keeps with a connection: shown, and edited as a whole. */
export function MetadataCard({
  environment,
  at,
  metadata,
  mayWrite,
}: {
  environment: string;
  at: At;
  metadata: Record<string, unknown>;
  mayWrite: boolean;
}) {
  const queries = useQueryClient();
  const [draft, setDraft] = useState<string>();
  const save = useMutation({
    mutationFn: (value: Record<string, unknown>) => setMetadata(environment, { ...at, metadata: value }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'connection'] });
      setDraft(undefined);
    },
  });
  const parsed = draft === undefined ? undefined : objectOf(draft);
  return (
    <Card>
      <Group justify="space-between" mb="xs">
        <Title order={2}>Metadata</Title>
        {mayWrite && draft === undefined && (
          <Button
            size="compact-sm"
            variant="subtle"
            onClick={() => setDraft(JSON.stringify(metadata, null, 2))}
          >
            Edit
          </Button>
        )}
      </Group>
      {draft === undefined ? (
        Object.keys(metadata).length === 0 ? (
          <Text c="dimmed" size="sm">
            Your application keeps nothing here yet.
          </Text>
        ) : (
          <Code block tabIndex={0}>
            {JSON.stringify(metadata, null, 2)}
          </Code>
        )
      ) : (
        <Stack gap="sm">
          <JsonInput
            aria-label="Metadata as JSON"
            value={draft}
            onChange={setDraft}
            autosize
            minRows={4}
            maxRows={16}
            error={parsed === undefined && 'An object in JSON, please'}
          />
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" size="sm" onClick={() => setDraft(undefined)}>
              Cancel
            </Button>
            <Button
              size="sm"
              disabled={parsed === undefined}
              loading={save.isPending}
              onClick={() => parsed && save.mutate(parsed)}
            >
              Save
            </Button>
          </Group>
        </Stack>
      )}
    </Card>
  );
}

function objectOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
