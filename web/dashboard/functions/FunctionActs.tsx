import { Button, List, Stack, Text } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { IconPower, IconTrash } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { counted } from '../../ui/size.ts';
import {
  type FunctionAt,
  removeFunction,
  setEnabled,
  syncsQuery,
  versionsQuery,
  type WholeFunction,
} from './queries.ts';
import { types } from './words.ts';

/** Turning a function on and off, and removing it. */
export function FunctionActs({
  environment,
  at,
  found: { enabled },
}: {
  environment: string;
  at: FunctionAt;
  found: Pick<WholeFunction, 'enabled'>;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [removed, setRemoved] = useState<FunctionAt>();
  const turn = useMutation({
    mutationFn: () => setEnabled(environment, { ...at, enabled: !enabled }),
    onSuccess: (changed) => {
      const message = changed.enabled ? 'It is on: runs start at their time.' : 'It is off: no run starts.';
      notifications.show({ message, color: 'green' });
    },
    onError: ({ message }) => notifications.show({ title: 'Not changed', message, color: 'red' }),
    onSettled: () =>
      Promise.all([
        queries.invalidateQueries({ queryKey: [environment, 'functions'] }),
        queries.invalidateQueries({ queryKey: [environment, 'syncs'] }),
      ]),
  });
  const remove = useMutation({
    mutationFn: (gone: FunctionAt) => removeFunction(environment, gone),
    onSuccess: async () => {
      await navigate({ to: '/$environment/functions', params: { environment }, search: {} });
      for (const name of ['functions', 'syncs', 'runs'])
        void queries.invalidateQueries({ queryKey: [environment, name] });
    },
  });
  return (
    <>
      <Button
        variant="default"
        leftSection={<IconPower size={16} />}
        loading={turn.isPending}
        onClick={() => turn.mutate()}
      >
        {enabled ? 'Turn off' : 'Turn on'}
      </Button>
      <Button
        variant="light"
        color="red"
        leftSection={<IconTrash size={16} />}
        onClick={() => setRemoved(at)}
      >
        Remove
      </Button>
      <Confirm
        title={`Remove the ${types[at.type].label.toLowerCase()} ${at.name}?`}
        act="Remove for good"
        given={removed}
        mutation={remove}
        onClose={() => setRemoved(undefined)}
      >
        <WhatGoes environment={environment} at={at} />
      </Confirm>
    </>
  );
}

function WhatGoes({ environment, at }: { environment: string; at: FunctionAt }) {
  const versions = useQuery(versionsQuery(environment, at));
  const { integration, name, type } = at;
  const syncs = useQuery({
    ...syncsQuery(environment, { provider_config_key: integration, function: name, limit: 1 }),
    enabled: type === 'sync',
  });
  const schedules = syncs.data && Object.values(syncs.data.counts).reduce((total, count) => total + count, 0);
  return (
    <Stack gap="xs">
      <Loaded query={versions} loading={<LoadingRows rows={1} height={110} />}>
        {(known) => (
          <>
            <Text>This destroys, for good:</Text>
            <List>
              <List.Item>its code, in {counted(known.length, 'version')}</List.Item>
              {type === 'sync' && (
                <List.Item>
                  {schedules === undefined ? 'its' : counted(schedules, 'schedule')} of connections, with
                  their checkpoints
                </List.Item>
              )}
              <List.Item>its runs and their logs; what goes on ends</List.Item>
            </List>
            <Text size="sm" c="dimmed">
              {type === 'sync'
                ? 'Records that it saved stay. Nothing keeps them fresh afterwards.'
                : 'What it did at the provider stays.'}{' '}
              A deploy from a folder that still holds it brings it back.
            </Text>
          </>
        )}
      </Loaded>
    </Stack>
  );
}
