import { Code, Group, Modal, SegmentedControl, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import type { SuggestedApi } from './calls.ts';
import type { Form } from './request.ts';
import { clientOf, curlOf, fetchOf, type Place } from './snippets.ts';

/** The call as code, for a server that has the secret key. */
export function Snippets({
  form,
  place,
  api,
  isOpen,
  onClose,
}: {
  form: Form;
  place: Place;
  api: SuggestedApi | null | undefined;
  isOpen: boolean;
  onClose: () => void;
}) {
  return (
    <Modal
      opened={isOpen}
      onClose={onClose}
      title="The call as code"
      size="xl"
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <Codes form={form} place={place} api={api ?? null} />
    </Modal>
  );
}

function Codes({ form, place, api }: { form: Form; place: Place; api: SuggestedApi | null }) {
  const byClient = clientOf(form, place, api);
  const codes: Record<string, string> = {
    curl: curlOf(form, place),
    fetch: fetchOf(form, place),
    ...(byClient !== undefined && { [api?.client?.package ?? '']: byClient }),
  };
  const [chosen, setChosen] = useState('curl');
  const code = codes[chosen] ?? codes.curl ?? '';
  return (
    <Stack gap="sm">
      <Group justify="space-between" gap="xs">
        <SegmentedControl
          size="xs"
          aria-label="Language"
          data={Object.keys(codes)}
          value={chosen in codes ? chosen : 'curl'}
          onChange={setChosen}
        />
        <CopyButton value={code} what="the code" label="Copy" />
      </Group>
      <Code block tabIndex={0} aria-label="Code">
        {code}
      </Code>
      <Text size="sm" c="dimmed">
        <code>TRELLIS_KEY</code> stands for a secret key of this environment with the scopes{' '}
        <code>proxy:read</code> or <code>proxy:write</code>. Values named like secrets are left out.
        {byClient === undefined &&
          api?.client !== undefined &&
          ` For calls of the list there is code for ${api.client.package}, too.`}
      </Text>
    </Stack>
  );
}
