import { Box, Group, SegmentedControl, Stack, Text, Title } from '@mantine/core';
import { useState } from 'react';
import { wordsOn } from '../../ui/contrast.ts';
import type { Look } from './ConnectPageTab.tsx';

const grounds = {
  light: { page: '#ffffff', text: '#16191d', quiet: '#59616b', line: '#dee2e6' },
  dark: { page: '#1a1b1e', text: '#eceff2', quiet: '#a9b1ba', line: '#373a40' },
};

/** Name, logo and colours as the connect page puts them, before anything is saved. Nothing in it can be pressed. */
export function ConnectPreview({ look }: { look: Look }) {
  const [chosen, setChosen] = useState<'light' | 'dark'>('light');
  const scheme = look.theme === 'system' ? chosen : look.theme;
  const ground = grounds[scheme];
  const primary = /^#[0-9a-f]{6}$/i.test(look[scheme]) ? look[scheme] : '#2454d6';
  const name = look.appName.trim() === '' ? 'the application' : look.appName.trim();
  return (
    <Stack gap="xs">
      <Group justify="space-between" mih={36}>
        <Title order={2}>Preview</Title>
        {look.theme === 'system' && (
          <SegmentedControl
            size="xs"
            aria-label="Preview in"
            value={chosen}
            onChange={(value) => setChosen(value === 'dark' ? 'dark' : 'light')}
            data={[
              { value: 'light', label: 'Light' },
              { value: 'dark', label: 'Dark' },
            ]}
          />
        )}
      </Group>
      <Box className="framed" p="xl" style={{ background: ground.page }} data-testid="preview">
        <Stack
          gap="md"
          maw={360}
          mx="auto"
          p="lg"
          bdrs="md"
          style={{ background: ground.page, border: `1px solid ${ground.line}` }}
        >
          {(look.logo !== null || look.appName.trim() !== '') && (
            <Group gap="sm" wrap="nowrap">
              {look.logo !== null && <img src={look.logo} alt="" height={36} className="picked-logo" />}
              <Text fw={650} c={ground.text} className="wrap">
                {look.appName.trim()}
              </Text>
            </Group>
          )}
          <Text fw={650} size="lg" c={ground.text}>
            Connect Google Sheets
          </Text>
          <Text size="sm" c={ground.quiet}>
            {name} asks for access to your Google Sheets account. Go on only if you came from there yourself.
          </Text>
          <Box
            ta="center"
            p={10}
            bdrs="md"
            fw={600}
            fz="sm"
            style={{ background: primary, color: wordsOn(primary) }}
          >
            Continue to Google Sheets
          </Box>
        </Stack>
      </Box>
    </Stack>
  );
}
