import { Alert, Button, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { IconAlertTriangle } from './icons.tsx';

/**
 * `isChanged`: a value differs from the one with which the form was opened. `isUnseen` is asked before a save: `read` returns a
 * value that the page has not shown yet.
 */
export function useChangedMeanwhile<T>(current: T, read: () => Promise<T>) {
  const text = JSON.stringify(current);
  const [opened] = useState(text);
  return { isChanged: opened !== text, isUnseen: async () => JSON.stringify(await read()) !== text };
}

/** Above the buttons of a form that replaces a whole value, which was changed elsewhere since the form was opened. */
export function ChangedMeanwhile({ subject, onDiscard }: { subject: string; onDiscard: () => void }) {
  return (
    <Alert
      color="yellow"
      role="alert"
      icon={<IconAlertTriangle size={18} />}
      title={`The ${subject} changed after you opened this form`}
    >
      <Stack gap="xs" align="flex-start">
        <Text size="sm">If you save, your version replaces that change.</Text>
        <Button size="compact-sm" variant="default" onClick={onDiscard}>
          Discard my changes
        </Button>
      </Stack>
    </Alert>
  );
}
