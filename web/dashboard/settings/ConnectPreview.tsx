import { Box, Group, SegmentedControl, Stack, Text, Title } from '@mantine/core';
import { useState } from 'react';
import type { Look } from './ConnectPageTab.tsx';

const grounds = {
  light: { page: '#ffffff', card: '#ffffff', text: '#16191d', quiet: '#59616b', line: '#dee2e6' },
  dark: { page: '#1a1b1e', card: '#25262b', text: '#eceff2', quiet: '#a2abb5', line: '#373a40' },
};

/** The connect page as it would look, before anything is saved. Nothing in it can be pressed. */
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
          style={{ background: ground.card, border: `1px solid ${ground.line}` }}
        >
          <Group gap="sm" wrap="nowrap">
            {look.logo !== null && <img src={look.logo} alt="" height={36} className="picked-logo" />}
            <Text fw={650} c={ground.text} className="wrap">
              {look.appName.trim() === '' ? 'Connect your account' : name}
            </Text>
          </Group>
          <Text size="sm" c={ground.quiet}>
            Connect your Google Sheets account, so that {name} can work with it for you.
          </Text>
          <Box
            ta="center"
            p={10}
            bdrs="md"
            fw={600}
            fz="sm"
            style={{ background: primary, color: readableOn(primary) }}
          >
            Continue with Google Sheets
          </Box>
          <Text size="xs" ta="center" c={ground.quiet}>
            You can end this at any time.
          </Text>
        </Stack>
      </Box>
    </Stack>
  );
}

/** Black or white, whichever stands out more on the colour (WCAG 2.2, relative luminance). */
function readableOn(color: string): string {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000000' : '#ffffff';
}
