import { Alert, Button, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { IconAlertTriangle } from './icons.tsx';

/** Whether a value differs from the one with which the form was opened. */
export function useChangedMeanwhile(current: unknown): boolean {
  const text = JSON.stringify(current);
  const [opened] = useState(text);
  return opened !== text;
}

/** Above the buttons of a form that replaces a whole value, which another user has changed since it was opened. */
export function ChangedMeanwhile({ subject, onDiscard }: { subject: string; onDiscard: () => void }) {
  return (
    <Alert
      color="yellow"
      role="alert"
      icon={<IconAlertTriangle size={18} />}
      title={`Another user changed the ${subject}`}
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
